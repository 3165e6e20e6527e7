package verify

import (
	"bytes"
	"fmt"
	"slices"

	"railbed/capture/layers"
	"railbed/transports/infiniband"
)

// roceSide is the end at which a connection is looked at.
type roceSide uint8

const (
	// atRequester: requests where they leave their sender's NIC, and what comes back
	// to it.
	atRequester roceSide = iota
	// atResponder: requests where they come to their receiver's NIC, and what leaves
	// it.
	atResponder
)

const (
	maxRoCEFlows = 1 << 13 // directions of connections that are followed
	// maxRoCESent is how many packets of one are remembered until they are
	// acknowledged.
	maxRoCESent = 1 << 14
	// mostRoCESent is how many of all are remembered at once, 24 MB; from there on each
	// keeps leastRoCESent, so that a capture in which every flow leaps cannot take all
	// memory.
	mostRoCESent  = 1 << 20
	leastRoCESent = 64
	// roceWindow is how far a PSN may be from the one before it. What is farther away
	// is another life of its queue pair.
	roceWindow = maxRoCESent
)

// roceFlows follows requests of connections, and what answers them, at one end. In a
// capture without NICs, such as tcpdump's, the first tap that sees two addresses
// speak stands for both ends. S is what a check knows of a flow.
//
// A BTH names only the queue pair that a packet is for. Which two belong together is
// taken from the messages that connected them, where they were captured, and else
// from an answer whose PSN only one flow awaits.
type roceFlows[S any] struct {
	selector
	side roceSide
	// reliable leaves the flows of unreliable connections out.
	reliable bool
	flows    map[roceKey]*roceFlow[S]
	ordered  []*roceFlow[S] // as they began
	between  map[[32]byte][]*roceFlow[S]
	mates    map[roceKey]roceKey // the two directions of a connection, each by the other
	asking   map[roceComm]roceAsked
	starts   map[roceKey]infiniband.PSN // of the first request, by the messages that connected
	homes    map[[32]byte]int           // tap by two addresses, where taps are no NICs

	damaged    uint64 // packets that came with a wrong ICRC, and that their NIC throws away
	unread     uint64
	remembered int    // roceSents
	orphans    uint64 // answers of which it is not known what they answer
	anew       uint64 // flows that went on with a PSN from elsewhere
	full       bool
}

// roceComm names a connection that was asked for, and who did.
type roceComm struct {
	addr [16]byte
	comm uint32
}

// roceFlow is the requests from one queue pair to another. PSNs before una are
// acknowledged, next is behind the highest. sent are those from base on.
type roceFlow[S any] struct {
	key             roceKey
	name            string
	next, una, base infiniband.PSN
	sent            []roceSent
	remembered      *int // of all flows
	leftOut         int  // PSNs right before the latest new one
	paired          bool
	// mtu is the bytes of a packet that is not the last of its message, 0 while
	// none was seen.
	mtu int
	// open says that the last packet is a READ of so many bytes of which it is not
	// known how many PSNs it takes.
	open     bool
	openRead uint32
	// vague says that READs had been left out, and came when it was not known how many
	// PSNs they take: where there are several, nobody knows where one ends.
	vague bool
	own   S
}

// roceSent is a PSN.
type roceSent struct {
	opcode  infiniband.Opcode
	seen    bool // the packet was, or the READ whose PSN this is
	head    bool // the packet itself, not another PSN of a READ
	asks    bool // for an acknowledgement
	ends    bool // its message
	payload int32
	length  uint32 // of a RETH
	time    int64
}

// rocePlace is where a request stands in its flow.
type rocePlace uint8

const (
	roceNone   rocePlace = iota // no request that is followed
	roceFirst                   // of its flow, or of another life of it
	roceNext                    // the PSN that was to come
	roceGap                     // PSNs before it were left out
	roceFilled                  // a PSN that was left out before
	roceAgain                   // a PSN that was there before
	roceAnswer                  // no request, but an answer to requests of the flow
)

func newRoCEFlows[S any](side roceSide) roceFlows[S] {
	return roceFlows[S]{
		side: side, flows: map[roceKey]*roceFlow[S]{}, between: map[[32]byte][]*roceFlow[S]{}, mates: map[roceKey]roceKey{},
		asking: map[roceComm]roceAsked{}, starts: map[roceKey]infiniband.PSN{}, homes: map[[32]byte]int{},
	}
}

// sees says that a packet of RoCEv2 is at the end that is looked at.
func (v *roceFlows[S]) sees(p *Packet) bool {
	if p.Drop != "" || p.RoCE == nil && p.RoCEFault == RoCESound || !v.here(p) {
		return false
	}
	if p.RoCE == nil {
		v.unread++
		return false
	}
	return true
}

func (v *roceFlows[S]) here(p *Packet) bool {
	if p.Tap.NIC {
		asks := p.RoCE != nil && p.RoCE.BTH.Opcode.Request()
		return p.Direction != Unknown && (p.Direction == Out) == (asks == (v.side == atRequester))
	}
	if slices.ContainsFunc(v.capture.Taps, func(t *Tap) bool { return t.NIC }) {
		return false
	}
	ends := addresses(p.key.src, p.key.dst)
	if bytes.Compare(p.key.src[:], p.key.dst[:]) > 0 {
		ends = addresses(p.key.dst, p.key.src)
	}
	home, known := v.homes[ends]
	if !known {
		home = p.Tap.Index
		if v.full = v.full || len(v.homes) >= maxRoCEFlows; !v.full {
			v.homes[ends] = home
		}
	}
	return home == p.Tap.Index
}

func addresses(a, b [16]byte) (both [32]byte) {
	copy(both[:16], a[:])
	copy(both[16:], b[:])
	return both
}

// foreign says that no tap is a NIC's, so that packets may be lost and reordered on
// both sides of the taps.
func (v *roceFlows[S]) foreign() bool { return len(v.homes) > 0 }

// came says that a packet is whole as far as its receiver can tell. It counts those
// that are not.
func (v *roceFlows[S]) came(p *Packet) bool {
	if p.RoCE.ICRC() == layers.ICRCWrong {
		v.damaged++
		return false
	}
	return true
}

// walk takes a packet: the flow that it is of, and its place there. It is roceNone for
// what is elsewhere, came damaged, or is neither a request nor an answer of a
// connection.
func (v *roceFlows[S]) walk(p *Packet) (*roceFlow[S], rocePlace) {
	switch {
	case !v.sees(p):
		return nil, roceNone
	case !p.RoCE.BTH.Opcode.Response():
		return v.request(p)
	}
	if f := v.answer(p); f != nil {
		return f, roceAnswer
	}
	return nil, roceNone
}

// walkRequests is walk for who looks at requests alone: of an answer it takes what is
// acknowledged, and has no flow.
func (v *roceFlows[S]) walkRequests(p *Packet) (*roceFlow[S], rocePlace) {
	f, place := v.walk(p)
	if place == roceAnswer {
		f.acknowledge(acknowledged(p.RoCE))
		return nil, roceNone
	}
	return f, place
}

// acknowledged is the PSN before which an answer says that all came: a NAK names the
// one that it refuses, all others the last that they answer (IBTA, 9.7.5.2).
func acknowledged(r *RoCE) infiniband.PSN {
	if r.BTH.Opcode.Has(infiniband.HasAETH) && r.AETH.Syndrome.Kind() != infiniband.Ack {
		return r.BTH.PSN
	}
	return r.BTH.PSN.Add(1)
}

// request takes a request that sees: its flow, and its place there. Requests that do
// not come whole are none at the responder.
func (v *roceFlows[S]) request(p *Packet) (*roceFlow[S], rocePlace) {
	o := p.RoCE.BTH.Opcode
	if o.Has(infiniband.HasDETH) {
		v.learn(p)
	}
	if service := o.Service(); !o.Request() || service != infiniband.RC && (service != infiniband.UC || v.reliable) || v.side == atResponder && !v.came(p) {
		return nil, roceNone
	}
	key := p.roceKey()
	f := v.flows[key]
	if f == nil {
		if v.full = v.full || len(v.flows) >= maxRoCEFlows; v.full {
			return nil, roceNone
		}
		f = &roceFlow[S]{key: key, remembered: &v.remembered, name: fmt.Sprintf("%s to %s QP %#06x", p.Flow.Src.Addr(), p.Flow.Dst.Addr(), uint32(key.qp))}
		v.flows[key] = f
		v.ordered = append(v.ordered, f)
		ends := addresses(key.src, key.dst)
		v.between[ends] = append(v.between[ends], f)
		f.begin(p.RoCE.BTH.PSN)
		f.learnFrom(p)
		v.begun(f, p.RoCE.BTH.PSN)
		f.add(p)
		return f, roceFirst
	}
	f.learnFrom(p)
	place := f.place(p)
	if place == roceFirst {
		v.anew++
	}
	return f, place
}

func (f *roceFlow[S]) begin(psn infiniband.PSN) {
	f.drop(len(f.sent))
	f.base, f.una, f.next, f.open, f.vague = psn, psn, psn, false, false
}

// place finds the place of a request, and adds it.
func (f *roceFlow[S]) place(p *Packet) rocePlace {
	r := p.RoCE
	ahead := r.BTH.PSN.From(f.next)
	if f.open && ahead >= 0 {
		if readMTU(f.openRead, ahead+1) > 0 {
			f.extendRead(ahead)
			ahead = 0
		}
		f.open = false
	}
	switch {
	case ahead > roceWindow || ahead < -roceWindow:
		f.begin(r.BTH.PSN)
		f.add(p)
		return roceFirst
	case ahead < 0 && f.fill(p):
		return roceFilled
	case ahead < 0:
		return roceAgain
	}
	for range ahead {
		f.push(roceSent{})
	}
	f.add(p)
	if f.leftOut = ahead; ahead > 0 {
		return roceGap
	}
	return roceNext
}

// fill takes a request whose PSN is not new, and says whether it was left out before.
func (f *roceFlow[S]) fill(p *Packet) bool {
	psn := p.RoCE.BTH.PSN
	s := f.at(psn)
	if s == nil || s.seen {
		return false
	}
	if *s = sentOf(p); s.opcode.Operation() != infiniband.ReadRequest {
		return true
	}
	run := 1 // PSNs that the READ may take
	for next := f.at(psn.Add(run)); next != nil && !next.seen; next = f.at(psn.Add(run)) {
		run++
	}
	psns := 1
	if f.mtu > 0 {
		psns = min(run, readPSNs(s.length, f.mtu))
	} else if f.vague = f.vague || run > 1 && s.length > uint32(infiniband.MTU(1)); readMTU(s.length, run) > 0 {
		psns = run
	}
	s.ends = psns == 1
	for i := 1; i < psns; i++ {
		*f.at(psn.Add(i)) = roceSent{opcode: infiniband.ReadRequest, seen: true, ends: i == psns-1}
	}
	return true
}

// sentOf is what is remembered of a packet.
func sentOf(p *Packet) roceSent {
	b := &p.RoCE.BTH
	return roceSent{
		opcode: b.Opcode, seen: true, head: true, asks: b.AckReq, ends: b.Opcode.Ends(), payload: int32(p.RoCE.Payload), length: p.RoCE.RETH.Length, time: p.Time,
	}
}

// add adds a request at next.
func (f *roceFlow[S]) add(p *Packet) {
	s := sentOf(p)
	if s.opcode.Operation() != infiniband.ReadRequest {
		f.push(s)
		return
	}
	s.ends = false // with its last PSN
	f.push(s)
	switch {
	case s.length <= uint32(infiniband.MTU(1)):
		f.extendRead(0)
	case f.mtu > 0:
		f.extendRead(readPSNs(s.length, f.mtu) - 1)
	default:
		f.open, f.openRead = true, s.length
	}
}

// extendRead adds the PSNs behind a READ request's own, which is the last packet.
func (f *roceFlow[S]) extendRead(more int) {
	if more >= maxRoCESent { // so that nothing else is remembered
		f.next = f.next.Add(more)
		f.drop(len(f.sent))
		f.base = f.next
	} else {
		for range more {
			f.push(roceSent{opcode: infiniband.ReadRequest, seen: true})
		}
	}
	if f.open = false; len(f.sent) > 0 {
		f.sent[len(f.sent)-1].ends = true
	}
}

func (f *roceFlow[S]) push(s roceSent) {
	if n := len(f.sent); n >= maxRoCESent || n >= leastRoCESent && *f.remembered >= mostRoCESent {
		f.drop(n / 2)
	}
	*f.remembered++
	f.sent = append(f.sent, s)
	f.next = f.next.Add(1)
}

// at is what is remembered of a PSN, or nil.
func (f *roceFlow[S]) at(psn infiniband.PSN) *roceSent {
	if i := psn.From(f.base); i >= 0 && i < len(f.sent) {
		return &f.sent[i]
	}
	return nil
}

// learnFrom learns the path MTU from a packet that is not the last of its message.
func (f *roceFlow[S]) learnFrom(p *Packet) {
	if o := p.RoCE.BTH.Opcode; o.HasPayload() && !o.Ends() {
		f.learnMTU(p.RoCE.Payload)
	}
}

// learnMTU takes the bytes of a packet that is not the last of its message.
func (f *roceFlow[S]) learnMTU(bytes int) {
	if f.mtu > 0 || infiniband.MTUCode(bytes) == 0 {
		return
	}
	if f.mtu = bytes; f.open {
		f.extendRead(readPSNs(f.openRead, bytes) - 1)
	}
}

// readPSNs is how many PSNs a READ takes (IBTA, 9.7.5.1.1).
func readPSNs(length uint32, mtu int) int {
	return max(1, int((int64(length)+int64(mtu)-1)/int64(mtu)))
}

// readMTU is the path MTU with which a READ takes so many PSNs, 0 for none.
func readMTU(length uint32, psns int) int {
	for code := uint8(1); infiniband.MTU(code) > 0; code++ {
		if mtu := infiniband.MTU(code); readPSNs(length, mtu) == psns {
			return mtu
		}
	}
	return 0
}

// holds says that a PSN is one of those that await an answer, or had one lately.
func (f *roceFlow[S]) holds(psn infiniband.PSN) bool {
	end := f.next
	if f.open {
		end = end.Add(readPSNs(f.openRead, infiniband.MTU(1)) - 1)
	}
	return psn.From(f.base) >= 0 && psn.From(end) < 0
}

// acknowledge moves una up to a PSN, and forgets what is before it. It gives what it
// forgets, in order, until the next call of any method.
func (f *roceFlow[S]) acknowledge(psn infiniband.PSN) (gone []roceSent) {
	if psn.From(f.una) > 0 && psn.From(f.next) <= 0 {
		f.una = psn
	}
	return f.drop(min(max(0, f.una.From(f.base)), len(f.sent)))
}

// drop forgets the first PSNs that are remembered. It gives them until the next call
// of any method.
func (f *roceFlow[S]) drop(n int) (gone []roceSent) {
	gone, f.sent, f.base = f.sent[:n], f.sent[n:], f.base.Add(n)
	*f.remembered -= n
	return gone
}

// rests are the taps that the check rests on.
func (v *roceFlows[S]) rests() (taps []*Tap) {
	if !v.foreign() {
		return v.nicTaps()
	}
	for _, tap := range v.capture.Taps {
		for _, home := range v.homes {
			if home == tap.Index {
				taps = append(taps, tap)
				break
			}
		}
	}
	return taps
}

// doubts are reasons why what was not seen may have been there all the same.
func (v *roceFlows[S]) doubts() (lines []string) {
	if !v.foreign() {
		for _, name := range v.untapped() {
			lines = append(lines, name+" was not captured")
		}
	}
	add := func(count uint64, what string) {
		if count > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", count, what))
		}
	}
	add(v.unread, "packets of RoCEv2 cannot be read: cut off by the capture, or damaged")
	add(v.orphans, "answers cannot be told whose they are")
	add(v.anew, "flows went on with a PSN from elsewhere, as a queue pair's next life does")
	if v.full {
		lines = append(lines, "more flows than are followed")
	}
	return lines
}

// notApplicable is what a check says whose precondition does not hold.
func notApplicable(format string, args ...any) string {
	return "NOT-APPLICABLE: " + fmt.Sprintf(format, args...)
}

// findings are what a check found: counts with words, and examples of them.
type findings struct {
	lines, examples []string
}

func (f *findings) count(n uint64, what string) {
	if n > 0 {
		f.lines = append(f.lines, fmt.Sprintf("%d %s", n, what))
	}
}

func (f *findings) exemplify(format string, args ...any) {
	if len(f.examples) < 8 {
		f.examples = append(f.examples, fmt.Sprintf(format, args...))
	}
}

// all are the counts, and then the examples.
func (f *findings) all() []string { return append(f.lines, f.examples...) }
