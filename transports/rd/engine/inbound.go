package engine

import (
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// inbound is the sequence space of the packets from one engine of a peer.
type inbound struct {
	engine *Engine
	peer   *peer
	port   uint8 // of that engine

	next    PSN // the first that has not arrived
	highest PSN // the number after the highest that has arrived
	// came has a bit for each PSN of the window from next on, at PSN % Window, the most significant
	// first.
	came [Window / 64]uint64
	// hinted likewise has a bit for each PSN for which an unauthenticated trimmed header arrived.
	hinted [Window / 64]uint64

	message  uint32 // the first that is not over
	messages [Messages]inMessage
	begun    int  // messages that have begun and are not over
	listed   bool // it is in Engine.begun

	duplicates, received uint32
	epoch                clock.Time // the epoch in which it was counted as a sender

	// The contents of the next acknowledgement.
	owes      bool
	waits     bool       // it is in Engine.later
	due       clock.Time // when it owes an acknowledgement
	unsaid    int        // packets since the last acknowledgement
	ended     bool       // a message has just completed
	after     *inbound   // the next that owes an acknowledgement
	timestamp uint32
	at        clock.Time // when the packet with that timestamp arrived
	stamped   bool       // that packet arrived since the last acknowledgement
	probed    bool       // and was a probe
	echoes    []wire.RDEcho
}

// stage is the state of a message at its receiver.
type stage uint8

const (
	unseen  stage = iota
	open          // bytes of it are being received
	refused       // it points to memory that it may not write; the sender will skip it
	over          // delivered or given up
)

type inMessage struct {
	stage   stage
	imm     bool
	reason  wire.RDReason
	total   uint32
	have    uint32 // bytes placed
	missing uint32 // bytes that will not arrive
	value   uint32 // of the immediate
	tiles   uint64 // the sum over the placed pieces and holes; see tile
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

// take records that a PSN has arrived, and advances next over all that have.
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

// window returns 64 bits of came from a PSN on.
func (in *inbound) window(psn PSN) uint64 {
	s := psn.slot()
	word, shift := s/64, s%64
	return in.came[word]<<shift | in.came[(word+1)%(Window/64)]>>(64-shift) // a shift by 64 gives 0
}

// arrived processes a data packet, a skip or a probe.
func (in *inbound) arrived(b wire.RD, base wire.RDBase, a Arrival, now clock.Time) {
	in.count(now)
	in.unsaid++
	in.ended = false
	late := PSN(base.PSN).From(in.highest) < 0
	in.kind(b, base, a, now)
	if base.Type != wire.RDData || base.Flags&wire.RDAckRequest != 0 || in.unsaid >= ackEvery || late {
		in.owe()
	} else {
		in.oweLater(a.at(now), now)
	}
}

// kind processes a packet by its type.
func (in *inbound) kind(b wire.RD, base wire.RDBase, a Arrival, now clock.Time) {
	switch base.Type {
	case wire.RDProbe:
		in.echo(a)
		in.timestamp, in.at, in.stamped, in.probed = b.ProbeTimestamp(), a.at(now), true, true
	case wire.RDSkip:
		in.echo(a)
		skip := b.Skip()
		in.stamp(skip.Timestamp, a.at(now))
		in.skip(base, &skip)
	default:
		data := b.Data()
		if !b.Trimmed() {
			in.echo(a)
			in.stamp(data.Timestamp, a.at(now))
		}
		in.data(b, base, &data, a)
	}
}

// count counts the sender among those that share the room, for a while.
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

// owe makes the next Next send an acknowledgement.
func (in *inbound) owe() {
	if !in.owes {
		in.owes = true
		in.after, in.engine.owing = in.engine.owing, in
	}
}

// oweLater makes the engine send an acknowledgement within ackDelay of the packet's arrival, or within
// endDelay.
func (in *inbound) oweLater(at, now clock.Time) {
	if !in.waits {
		in.waits = true
		in.engine.later = append(in.engine.later, in)
	}
	if in.unsaid == 1 {
		in.due = at.Add(ackDelay)
	}
	if in.ended {
		in.due = min(in.due, now.Add(endDelay))
	}
}

// oweDue makes the sequence spaces whose time has come owe an acknowledgement. It returns the next
// such time.
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

// stamp keeps the timestamp that the next acknowledgement returns. It is the timestamp of the
// packet that took longest, so that the sender measures how late packets arrive. A probe's
// timestamp takes precedence.
func (in *inbound) stamp(timestamp uint32, at clock.Time) {
	if !in.stamped || !in.probed && int32(uint32(at)-timestamp-(uint32(in.at)-in.timestamp)) > 0 {
		in.timestamp, in.at, in.stamped = timestamp, at, true
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

// data places a data packet, unless it is a duplicate or not permitted.
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
		in.set(m, inMessage{stage: open, imm: base.Flags&wire.RDImm != 0, total: f.Total, value: f.Imm})
	}
	in.piece(m, b, base, f, a)
}

// piece processes a piece of a message that is not over.
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
		c.Hostile++ // it contradicts the message's first packet
		return
	}
	last := m.have+m.missing+size == m.total
	tiles := m.tiles + in.engine.tile(f.Position+size) - in.engine.tile(f.Position)
	if last && tiles != in.engine.tile(m.total)-in.engine.tile(0) {
		c.Hostile++ // pieces overlap, and bytes would be missing
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

// piece reports whether size bytes can be a piece of the packet's message: some of its bytes, or no
// bytes if the message is empty.
func piece(f *wire.RDDataFields, size uint32) bool {
	return (size > 0 || f.Total == 0) && uint64(f.Position)+uint64(size) <= uint64(f.Total)
}

// holds reports whether a packet agrees with the message's first packet and does not exceed its
// length.
func (m *inMessage) holds(base wire.RDBase, f *wire.RDDataFields) bool {
	if f.Total != m.total || f.Imm != m.value || base.Flags&wire.RDImm != 0 != m.imm {
		return false
	}
	return m.total == 0 || f.Key == m.key && f.Offset == m.offset &&
		uint32(base.Length) <= m.total-m.have-m.missing
}

// tile maps a position in a message to a number that other hosts cannot predict. Take the sum over
// all pieces of tile(end) - tile(beginning). It equals tile(end) - tile(beginning) of the message
// only if each piece begins where another ends, so that the pieces cover the message.
func (e *Engine) tile(at uint32) uint64 {
	x := (uint64(at) + e.secret) * 0x9E3779B97F4A7C15 // the rest as in SplitMix64
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// find returns the state of a message within the window, or nil when it is over or beyond.
func (in *inbound) find(message uint32) *inMessage {
	if message-in.message >= Messages {
		return nil
	}
	return &in.messages[message%Messages]
}

// aim checks the whole message against its region, at the first packet that names the region.
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

// bound is the size of the region whose bounds the message exceeds, or 0.
func (m *inMessage) bound() uint64 {
	if m.reason != wire.RDBounds {
		return 0
	}
	return uint64(len(m.region.Memory))
}

// skip processes a skip: packets that will not be sent.
func (in *inbound) skip(base wire.RDBase, f *wire.RDSkipFields) {
	psn := PSN(base.PSN)
	distance := psn.From(in.next)
	if f.Count == 0 || distance >= Window || f.Count > uint32(Window) || distance+int32(f.Count) > Window {
		in.engine.counters.Hostile++
		return
	}
	if distance+int32(f.Count) <= 0 {
		return // all of them have arrived
	}
	if m := in.find(f.Message); m != nil {
		if base.Flags&wire.RDDroppable == 0 {
			in.set(m, inMessage{stage: over})
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

// leaveOut counts bytes of a droppable message that will not arrive. The skip must be for one
// packet, so that no bytes are counted that did arrive. It returns false when the skip cannot be
// accepted now.
func (in *inbound) leaveOut(m *inMessage, base wire.RDBase, f *wire.RDSkipFields) bool {
	psn := PSN(base.PSN)
	if f.Count != 1 || psn.From(in.next) >= 0 && in.has(psn) {
		return f.Count == 1
	}
	switch m.stage {
	case over, refused:
		return true
	case unseen:
		in.set(m, inMessage{stage: open, imm: base.Flags&wire.RDImm != 0, total: f.Total, value: f.Imm})
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

// finish ends a message when all its bytes have arrived or were left out.
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
	in.set(m, inMessage{stage: over})
	in.ended = true
	in.forget()
}

// forget advances over messages that are over.
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

// untimed is the delay of an acknowledgement without a valid timestamp. No sender takes it for a
// round trip.
const untimed = 1<<32 - 1

// acknowledge writes an acknowledgement of the packets that have arrived.
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
