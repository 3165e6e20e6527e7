package rocechecks

import (
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
)

const (
	// maxSent is the number of packets of a flow that are remembered until they are
	// acknowledged.
	maxSent = 1 << 14
	// mostSent is the number of packets of all flows that are remembered at once, 24 MB. Above
	// it each flow keeps leastSent, so that a capture in which every flow jumps cannot use all
	// memory.
	mostSent  = 1 << 20
	leastSent = 64
	// psnWindow is the largest distance of a PSN from the one before it. A greater distance means
	// another life of the queue pair.
	psnWindow = maxSent
)

// flow holds the requests from one queue pair to another. PSNs before una are acknowledged.
// next is one more than the highest PSN. sent holds the PSNs from base on.
type flow[S any] struct {
	key             pairKey
	name            string
	next, una, base infiniband.PSN
	sent            []sentPSN
	remembered      *int // number over all flows
	leftOut         int  // PSNs right before the latest new one
	filled          int  // PSNs left out before that the latest request took
	// nic is where the latest request was seen.
	nic    *evidence.Tap
	paired bool
	// mtu is the payload of a packet that is not the last of its message, in bytes. It is 0 while
	// no such packet was seen.
	mtu int
	// open reports whether the last packet is a READ for which the number of PSNs is not known. The
	// READ has openRead bytes.
	open     bool
	openRead uint32
	// vague reports whether it is not known where READs end. READs were left out and arrived later,
	// when the number of their PSNs was not known, and there are several of them. The same holds if
	// the packet after a READ with an unknown number of PSNs was left out.
	vague bool
	// over reports whether the next request begins another life of the queue pair. Other
	// messages that connected the queue pair announced that life.
	over bool
	// closing reports whether one end asked the other to end the connection. closed is the time.
	closing bool
	closed  int64
	// first and began are the PSN and the time of the first request of its life.
	first infiniband.PSN
	began int64
	own   S
}

// sentPSN is the state of a PSN.
type sentPSN struct {
	opcode  infiniband.Opcode
	seen    bool // its packet or its READ was seen
	head    bool // not a further PSN of a READ
	asks    bool // asks for an acknowledgement
	ends    bool // ends its message
	early   bool // a check saw an earlier gap on arrival
	payload int32
	length  uint32 // of a RETH
	time    int64
}

// place is the place of a request in its flow.
type place uint8

const (
	placeNone   place = iota // not followed
	placeFirst               // first of a flow or life
	placeNext                // the expected PSN
	placeGap                 // PSNs before it were left out
	placeFilled              // a PSN left out before
	placeAgain               // a PSN seen before
	placeAnswer              // an answer
)

// begin starts a life at a request, without adding the request.
func (f *flow[S]) begin(p *evidence.Packet) {
	f.drop(len(f.sent))
	f.start(p.RoCE.BTH.PSN)
	f.first, f.began = p.RoCE.BTH.PSN, p.Time
	f.mtu, f.open, f.vague, f.over, f.closing = 0, false, false, false, false
	f.learnFrom(p)
}

// start sets the next PSN of a flow of which no PSN is remembered.
func (f *flow[S]) start(psn infiniband.PSN) { f.base, f.una, f.next = psn, psn, psn }

// place returns the place of a request, and adds the request.
func (f *flow[S]) place(p *evidence.Packet) place {
	r := p.RoCE
	ahead := r.BTH.PSN.From(f.next)
	if f.open && ahead >= 0 {
		if readMTU(f.openRead, ahead+1) > 0 {
			f.extendRead(ahead)
			ahead = 0
		}
		f.open, f.vague = false, f.vague || ahead > 0
	}
	switch {
	case ahead > psnWindow || ahead < -psnWindow:
		f.begin(p)
		f.add(p)
		return placeFirst
	case ahead < 0 && f.fill(p):
		return placeFilled
	case ahead < 0:
		return placeAgain
	}
	for range ahead {
		f.push(sentPSN{})
	}
	f.add(p)
	if f.leftOut = ahead; ahead > 0 {
		return placeGap
	}
	return placeNext
}

// fill adds a request whose PSN is not new, and reports whether the PSN was left out before.
func (f *flow[S]) fill(p *evidence.Packet) bool {
	psn := p.RoCE.BTH.PSN
	s := f.at(psn)
	if s == nil || s.seen {
		return false
	}
	f.filled = 1
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
	} else if f.vague = f.vague ||
		run > 1 && s.length > uint32(infiniband.MTU(1)); readMTU(s.length, run) > 0 {
		psns = run
	}
	s.ends, f.filled = psns == 1, psns
	for i := 1; i < psns; i++ {
		*f.at(psn.Add(i)) = sentPSN{opcode: infiniband.ReadRequest, seen: true, ends: i == psns-1}
	}
	return true
}

// sentOf returns the state to remember of a packet.
func sentOf(p *evidence.Packet) sentPSN {
	b := &p.RoCE.BTH
	return sentPSN{
		opcode:  b.Opcode,
		seen:    true,
		head:    true,
		asks:    b.AckReq,
		ends:    b.Opcode.Ends(),
		payload: int32(p.RoCE.Payload),
		length:  p.RoCE.RETH.Length,
		time:    p.Time,
	}
}

// add adds a request at next.
func (f *flow[S]) add(p *evidence.Packet) {
	s := sentOf(p)
	if s.opcode.Operation() != infiniband.ReadRequest {
		f.push(s)
		return
	}
	s.ends = false // its last PSN ends it
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

// extendRead adds the further PSNs of a READ request, which is the last packet.
func (f *flow[S]) extendRead(more int) {
	if more >= maxSent { // it would displace all others
		f.next = f.next.Add(more)
		f.drop(len(f.sent))
		f.base = f.next
	} else {
		for range more {
			f.push(sentPSN{opcode: infiniband.ReadRequest, seen: true})
		}
	}
	if f.open = false; len(f.sent) > 0 {
		f.sent[len(f.sent)-1].ends = true
	}
}

func (f *flow[S]) push(s sentPSN) {
	if n := len(f.sent); n >= maxSent || n >= leastSent && *f.remembered >= mostSent {
		f.drop(n / 2)
	}
	*f.remembered++
	f.sent = append(f.sent, s)
	f.next = f.next.Add(1)
}

// at returns the state of a PSN, or nil.
func (f *flow[S]) at(psn infiniband.PSN) *sentPSN {
	if i := psn.From(f.base); i >= 0 && i < len(f.sent) {
		return &f.sent[i]
	}
	return nil
}

// learnFrom takes the path MTU from a packet that is not the last of its message.
func (f *flow[S]) learnFrom(p *evidence.Packet) {
	if o := p.RoCE.BTH.Opcode; o.HasPayload() && !o.Ends() {
		f.learnMTU(p.RoCE.Payload)
	}
}

// learnMTU takes the path MTU from the payload length of a packet that is not the last of its
// message.
func (f *flow[S]) learnMTU(bytes int) {
	if f.mtu > 0 || infiniband.MTUCode(bytes) == 0 {
		return
	}
	if f.mtu = bytes; f.open {
		f.extendRead(readPSNs(f.openRead, bytes) - 1)
	}
}

// readPSNs returns how many PSNs a READ takes (IBTA, 9.7.5.1.1).
func readPSNs(length uint32, mtu int) int {
	return max(1, int((int64(length)+int64(mtu)-1)/int64(mtu)))
}

// readMTU returns the path MTU with which a READ takes a number of PSNs, or 0 for none.
func readMTU(length uint32, psns int) int {
	for code := uint8(1); infiniband.MTU(code) > 0; code++ {
		if mtu := infiniband.MTU(code); readPSNs(length, mtu) == psns {
			return mtu
		}
	}
	return 0
}

// holds reports whether a PSN waits for an answer, or had one lately.
func (f *flow[S]) holds(psn infiniband.PSN) bool {
	end := f.next
	if f.open {
		end = end.Add(readPSNs(f.openRead, infiniband.MTU(1)) - 1)
	}
	return psn.From(f.base) >= 0 && psn.From(end) < 0
}

// acknowledge moves una up to a PSN, and forgets the PSNs before una. It returns the forgotten ones
// in order. They are valid until the next call of any method.
func (f *flow[S]) acknowledge(psn infiniband.PSN) (gone []sentPSN) {
	if psn.From(f.una) > 0 && psn.From(f.next) <= 0 {
		f.una = psn
	}
	return f.drop(min(max(0, f.una.From(f.base)), len(f.sent)))
}

// drop forgets the first n remembered PSNs, and returns them. They are valid until the next call of
// any method.
func (f *flow[S]) drop(n int) (gone []sentPSN) {
	gone, f.sent, f.base = f.sent[:n], f.sent[n:], f.base.Add(n)
	*f.remembered -= n
	return gone
}
