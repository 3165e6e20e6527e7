package engine

import (
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// inbound is the sequence space of what a peer's engine sends here.
type inbound struct {
	engine *Engine
	peer   *peer
	port   uint8 // of that engine

	next    PSN // the first that has not come
	highest PSN // behind the last that has come, at least next
	// came has a bit for each PSN of the window from next on, at PSN % Window,
	// the most significant first.
	came [Window / 64]uint64
	// hinted has a bit, likewise, for each that a trimmed header without a tag spoke
	// of.
	hinted [Window / 64]uint64

	message  uint32 // the first that is not over
	messages [Messages]inMessage

	duplicates, received uint32
	epoch                clock.Time // in which it was counted as a sender

	// What the next acknowledgement says.
	owes      bool
	waits     bool       // it is one of Engine.later
	due       clock.Time // when it owes one
	unsaid    int        // packets since the last one
	ended     bool       // a message came whole just now
	after     *inbound   // the next that owes one
	timestamp uint32
	at        clock.Time // when that came
	stamped   bool       // it came since the last acknowledgement
	probed    bool       // and is a probe's
	echoes    []wire.RDEcho
}

// stage is where a message is on its way.
type stage uint8

const (
	unseen  stage = iota
	open          // bytes of it come
	refused       // it points where it may not; the sender will skip it
	over          // delivered or given up
)

type inMessage struct {
	stage   stage
	imm     bool
	reason  wire.RDReason
	total   uint32
	have    uint32 // bytes placed
	missing uint32 // bytes that will not come
	value   uint32 // of the immediate
	tiles   uint64 // what the pieces placed, and holes, add up to; see tile
	holes   []transports.Hole
	key     uint64
	offset  uint64
	place   []byte
	region  *Region
}

func (e *Engine) newInbound(p *peer, port uint8) *inbound {
	first := firstPSN(p.Life)
	return &inbound{
		engine: e, peer: p, port: port, next: first, highest: first, message: firstMessage(p.Life),
		echoes: make([]wire.RDEcho, 0, wire.RDMaxEchoes),
	}
}

func (in *inbound) has(psn PSN) bool {
	s := psn.slot()
	return in.came[s/64]>>(63-s%64)&1 != 0
}

// take notes that a PSN has come, and moves on over those that have.
func (in *inbound) take(psn PSN) {
	s := psn.slot()
	in.came[s/64] |= 1 << (63 - s%64)
	if psn.From(in.highest) >= 0 {
		in.highest = psn + 1
	}
	for in.next != in.highest && in.has(in.next) {
		s := in.next.slot()
		in.came[s/64] &^= 1 << (63 - s%64)
		in.hinted[s/64] &^= 1 << (63 - s%64)
		in.next++
	}
}

// window is 64 bits of what has come from a PSN on.
func (in *inbound) window(psn PSN) uint64 {
	s := psn.slot()
	word, shift := s/64, s%64
	return in.came[word]<<shift | in.came[(word+1)%(Window/64)]>>(64-shift) // a shift by 64 is 0
}

// arrived takes a data packet, a skip or a probe.
func (in *inbound) arrived(b wire.RD, base wire.RDBase, a Arrival, now clock.Time) {
	in.count(now)
	in.unsaid++
	in.ended = false
	late := PSN(base.PSN).From(in.highest) < 0
	in.kind(b, base, a, now)
	if base.Type != wire.RDData || base.Flags&wire.RDAckRequest != 0 || in.unsaid >= ackEvery || late {
		in.owe()
	} else {
		in.oweLater(now)
	}
}

// kind does what the type of packet asks for.
func (in *inbound) kind(b wire.RD, base wire.RDBase, a Arrival, now clock.Time) {
	switch base.Type {
	case wire.RDProbe:
		in.echo(a)
		in.timestamp, in.at, in.stamped, in.probed = b.ProbeTimestamp(), now, true, true
	case wire.RDSkip:
		in.echo(a)
		skip := b.Skip()
		in.stamp(skip.Timestamp, now)
		in.skip(base, &skip)
	default:
		data := b.Data()
		if !b.Trimmed() {
			in.echo(a)
			in.stamp(data.Timestamp, now)
		}
		in.data(b, base, &data, a)
	}
}

// count makes the sender one of those that share the room for a while.
func (in *inbound) count(now clock.Time) {
	e := in.engine
	if now.Sub(e.epoch) >= activity {
		e.last = e.senders
		if now.Sub(e.epoch) >= 2*activity {
			e.last = 0
		}
		e.senders, e.epoch = 0, now
	}
	if in.epoch != e.epoch || e.senders == 0 {
		in.epoch = e.epoch
		e.senders++
	}
}

// owe makes an acknowledgement go out with what is sent next.
func (in *inbound) owe() {
	if !in.owes {
		in.owes = true
		in.after, in.engine.owing = in.engine.owing, in
	}
}

// oweLater makes one go out by and by.
func (in *inbound) oweLater(now clock.Time) {
	if !in.waits {
		in.waits = true
		in.engine.later = append(in.engine.later, in)
	}
	if in.unsaid == 1 {
		in.due = now.Add(ackDelay)
	}
	if in.ended {
		in.due = min(in.due, now.Add(endDelay))
	}
}

// oweDue makes those owe an acknowledgement whose time has come, and says when
// the next one's does.
func (e *Engine) oweDue(now clock.Time) (next clock.Time) {
	next = clock.Never
	kept := e.later[:0]
	for _, in := range e.later {
		switch {
		case in.unsaid == 0 || in.peer.err != nil:
			in.waits = false
			continue
		case in.due <= now:
			in.waits = false
			in.owe()
			continue
		}
		next = min(next, in.due)
		kept = append(kept, in)
	}
	clear(e.later[len(kept):])
	e.later = kept
	return next
}

// stamp keeps the timestamp that the next acknowledgement returns: of the packet
// that took longest, so that its sender learns how late packets come; but a
// probe's as soon as there was one.
func (in *inbound) stamp(timestamp uint32, now clock.Time) {
	if !in.stamped || !in.probed && int32(uint32(now)-timestamp-(uint32(in.at)-in.timestamp)) > 0 {
		in.timestamp, in.at, in.stamped = timestamp, now, true
	}
}

// echo counts the packet for its path.
func (in *inbound) echo(a Arrival) {
	if n := len(in.echoes); n == 0 || in.echoes[n-1].Path != a.Path || in.echoes[n-1].Packets == 0xFF {
		if n == cap(in.echoes) {
			return
		}
		in.echoes = append(in.echoes, wire.RDEcho{Path: a.Path})
	}
	e := &in.echoes[len(in.echoes)-1]
	e.Packets++
	if a.Marked {
		e.Marked++
	}
}

// data places a data packet, unless it came before or may not.
func (in *inbound) data(b wire.RD, base wire.RDBase, f *wire.RDDataFields, a Arrival) {
	c := &in.engine.counters
	if a.Marked {
		c.Marked++
	}
	psn := PSN(base.PSN)
	switch distance := psn.From(in.next); {
	case distance >= Window:
		c.Hostile++
		in.nack(psn, f.Message, wire.RDWindow, a.Path, 0)
		return
	case distance < 0 || in.has(psn):
		c.Duplicates++
		in.duplicates++
		return
	case b.Trimmed():
		c.Trimmed++
		in.nack(psn, f.Message, wire.RDTrimmed, a.Path, 0)
		return
	case wire.RDSum(b.Payload()) != f.Sum:
		c.Corrupt++
		return
	}
	m := in.find(f.Message)
	switch {
	case !piece(f, uint32(base.Length)):
		c.Hostile++
		return
	case m == nil && int32(f.Message-in.message) >= 0:
		c.Hostile++
		in.nack(psn, f.Message, wire.RDWindow, a.Path, 0)
		return
	case m == nil || m.stage == over:
		in.take(psn) // of a message that was given up
		return
	case m.stage == unseen:
		*m = inMessage{stage: open, imm: base.Flags&wire.RDImm != 0, total: f.Total, value: f.Imm}
	}
	in.piece(m, b, base, f, a)
}

// piece takes a piece of a message that is not over.
func (in *inbound) piece(m *inMessage, b wire.RD, base wire.RDBase, f *wire.RDDataFields, a Arrival) {
	c, psn, size := &in.engine.counters, PSN(base.PSN), uint32(base.Length)
	if m.stage == open && m.total > 0 && m.region == nil {
		in.aim(m, f)
	}
	if m.stage == open && m.region != nil && m.region.Closed.Load() {
		m.stage, m.reason = refused, wire.RDNoRegion
	}
	switch {
	case m.stage == refused:
		c.Refused++
		in.nack(psn, f.Message, m.reason, a.Path, m.bound())
		return
	case !m.holds(base, f):
		c.Hostile++ // not of the message that began
		return
	}
	last := m.have+m.missing+size == m.total
	tiles := m.tiles + in.engine.tile(f.Position+size) - in.engine.tile(f.Position)
	if last && tiles != in.engine.tile(m.total)-in.engine.tile(0) {
		c.Hostile++ // pieces lie on each other, and bytes would be missing
		return
	}
	if last && m.imm && !in.engine.host.Reserve() {
		in.nack(psn, f.Message, wire.RDBusy, a.Path, 0)
		return
	}
	copy(m.place[f.Position:], b.Payload())
	m.have, m.tiles = m.have+size, tiles
	in.received += size
	c.Received++
	c.ReceivedBytes += uint64(size)
	in.take(psn)
	if last {
		in.finish(m)
	}
}

// piece says that so many bytes can be a piece of the message that the packet
// speaks of, whatever that is: some of its bytes, or the nothing of an empty one.
func piece(f *wire.RDDataFields, size uint32) bool {
	return (size > 0 || f.Total == 0) && uint64(f.Position)+uint64(size) <= uint64(f.Total)
}

// holds says that a packet is of the message that began, and not too much of it.
func (m *inMessage) holds(base wire.RDBase, f *wire.RDDataFields) bool {
	if f.Total != m.total || f.Imm != m.value || base.Flags&wire.RDImm != 0 != m.imm {
		return false
	}
	return m.total == 0 || f.Key == m.key && f.Offset == m.offset &&
		uint32(base.Length) <= m.total-m.have-m.missing
}

// tile is a number for a place in a message that nobody else can know. Over all
// pieces, the numbers of their ends less those of their beginnings are that of
// the message's end less that of its beginning exactly if each piece begins where
// another ends: if they cover it.
func (e *Engine) tile(at uint32) uint64 {
	x := (uint64(at) + e.secret) * 0x9E3779B97F4A7C15 // the rest as in SplitMix64
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// find is the state of a message within the window; nil when it is over or
// beyond.
func (in *inbound) find(message uint32) *inMessage {
	if message-in.message >= Messages {
		return nil
	}
	return &in.messages[message%Messages]
}

// aim checks the whole message at the first packet that says where it goes.
func (in *inbound) aim(m *inMessage, f *wire.RDDataFields) {
	m.key, m.offset = f.Key, f.Offset
	r := in.engine.host.Region(f.Key)
	switch {
	case r == nil || r.Closed.Load():
		m.stage, m.reason = refused, wire.RDNoRegion
	case !r.Writable:
		m.stage, m.reason = refused, wire.RDNotWritable
	case m.total > transports.MaxMessage || f.Offset > uint64(len(r.Memory)) ||
		uint64(m.total) > uint64(len(r.Memory))-f.Offset:
		m.stage, m.reason, m.region = refused, wire.RDBounds, r
	default:
		m.region = r
		m.place = r.Memory[f.Offset:][:m.total:m.total]
	}
}

// bound is the size of the region that the message would leave.
func (m *inMessage) bound() uint64 {
	if m.reason != wire.RDBounds {
		return 0
	}
	return uint64(len(m.region.Memory))
}

// skip takes that packets will not come.
func (in *inbound) skip(base wire.RDBase, f *wire.RDSkipFields) {
	psn := PSN(base.PSN)
	distance := psn.From(in.next)
	if f.Count == 0 || distance >= Window || f.Count > uint32(Window) || distance+int32(f.Count) > Window {
		in.engine.counters.Hostile++
		return
	}
	if distance+int32(f.Count) <= 0 {
		return // it has all come
	}
	if m := in.find(f.Message); m != nil {
		if base.Flags&wire.RDDroppable == 0 {
			*m = inMessage{stage: over}
		} else if !in.leaveOut(m, base, f) {
			return
		}
	} else if int32(f.Message-in.message) >= 0 {
		in.engine.counters.Hostile++
		return
	}
	for range f.Count {
		if psn.From(in.next) >= 0 && !in.has(psn) {
			in.take(psn)
		}
		psn++
	}
	in.forget()
}

// leaveOut counts bytes of a droppable message that will not come: those of
// one packet, so that none is counted that came after all. It is false when the
// skip cannot be taken now.
func (in *inbound) leaveOut(m *inMessage, base wire.RDBase, f *wire.RDSkipFields) bool {
	psn := PSN(base.PSN)
	if f.Count != 1 || psn.From(in.next) >= 0 && in.has(psn) {
		return f.Count == 1
	}
	switch m.stage {
	case over, refused:
		return true
	case unseen:
		*m = inMessage{stage: open, imm: base.Flags&wire.RDImm != 0, total: f.Total, value: f.Imm}
	}
	last := m.have+m.missing+f.Bytes == m.total
	tiles := m.tiles + in.engine.tile(f.Position+f.Bytes) - in.engine.tile(f.Position)
	if m.total != f.Total || m.value != f.Imm || base.Flags&wire.RDImm != 0 != m.imm ||
		f.Bytes > m.total-m.have-m.missing ||
		uint64(f.Position)+uint64(f.Bytes) > uint64(m.total) || f.Bytes == 0 ||
		last && tiles != in.engine.tile(m.total)-in.engine.tile(0) {
		in.engine.counters.Hostile++
		return false
	}
	if last && m.imm && !in.engine.host.Reserve() {
		in.nack(psn, f.Message, wire.RDBusy, 0, 0)
		return false
	}
	m.missing, m.tiles = m.missing+f.Bytes, tiles
	m.holes = addHole(m.holes, transports.Hole{Offset: int(f.Position), Bytes: int(f.Bytes)})
	if last {
		in.finish(m)
	}
	return true
}

// finish ends a message of which everything came that will.
func (in *inbound) finish(m *inMessage) {
	if m.imm {
		in.engine.host.Deliver(transports.Completion{
			Peer:    in.peer.number,
			Op:      transports.OpReceive,
			Imm:     m.value,
			Bytes:   int(m.have),
			Missing: int(m.missing),
			Holes:   m.holes,
		})
	}
	*m = inMessage{stage: over}
	in.ended = true
	in.forget()
}

// forget moves on over messages that are over.
func (in *inbound) forget() {
	for m := &in.messages[in.message%Messages]; m.stage == over; m = &in.messages[in.message%Messages] {
		*m = inMessage{}
		in.message++
	}
}

func (in *inbound) nack(psn PSN, message uint32, why wire.RDReason, path uint16, detail uint64) {
	in.engine.controls.push(&control{
		kind: wire.RDNack, peer: in.peer, port: in.port, psn: psn,
		nack: wire.RDNackFields{Reason: why, Path: path, Message: message, Detail: detail},
	})
}

// untimed is the delay of an acknowledgement whose timestamp says nothing: no
// clock's reading less it is a round trip.
const untimed = 1<<32 - 1

// acknowledge writes what has come.
func (in *inbound) acknowledge(p *Packet, now clock.Time) {
	delay := uint32(untimed)
	if in.stamped {
		delay = uint32(min(now.Sub(in.at), untimed))
	}
	in.owes, in.stamped, in.probed, in.unsaid = false, false, false, 0
	in.engine.counters.Acks++
	words := 0
	var bitmap [wire.RDMaxWords]uint64
	for at := in.next + 1; in.highest.From(at) > 0; at += 64 {
		bitmap[words] = in.window(at)
		words++
	}
	base := in.engine.base(in.peer, in.port)
	base.PSN = uint32(in.next)
	p.control(in.peer, in.port)
	p.header(wire.RDAckBytes(words, len(in.echoes))).EncodeAck(base, &wire.RDAckFields{
		Limit: uint32(in.next + Window), Timestamp: in.timestamp, Delay: delay,
		Duplicates: in.duplicates, Received: in.received, Room: uint16(min(in.engine.room(), 0xFFFF)),
	}, bitmap[:words], in.echoes)
	in.echoes = in.echoes[:0]
}
