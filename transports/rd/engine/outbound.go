package engine

import (
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
)

// outbound is the sequence space of the packets to one engine of a peer.
type outbound struct {
	engine *Engine
	peer   *peer
	port   uint8 // of that engine
	active bool

	paths    path.Chooser
	path     int          // of the next packets
	pathLeft int          // packets until the next pick
	probes   []clock.Time // by path, when its unanswered probe was sent, or 0

	first, last uint32 // messages: the oldest that is not over, and the number after the newest
	messages    [Messages]outMessage
	long, short line   // the messages with unsent packets
	turn        int    // packets of the current line's turn
	longs       bool   // the current line is the long one
	inline      []byte // of the messages, MaxInline each; made when one is inline

	una, next PSN // packets: the oldest that is not over, and the number after the newest
	limit     PSN // the first that the peer will not accept
	packets   [Window]outPacket
	flight    list // sent, in order of their latest transmission
	lost      list // to be sent again
	busy      list // refused for now.
	room      int  // the most packets in flight
	under     int  // bytes of payload in flight
	unasked   int  // bytes since an acknowledgement was last requested for the controller's window

	control rate.Controller // nil: only the engine's pacer limits sending
	grants  rate.Allowance  // its answer for the next packet
	lane    lane            // of the controller's rate
	told    rate.Ack        // the report on this acknowledgement to the controller

	late       lateness
	newest     uint64 // Order of the latest transmission that has arrived, or of a probe.
	overtaker  uint64 // The same, without probes.
	duplicates uint32 // As the peer counts them.
	doubtful   uint64 // Packets sent again that the peer has not counted as duplicates.
	repeated   bool   // data was sent again since they grew

	deadline   clock.Time // when tick must run
	probing    bool       // a probe is to be sent
	asked      bool       // the latest packet requested an acknowledgement
	ended      bool       // it was the last packet to send.
	probed     clock.Time // when the latest probe was sent
	probeOrder uint64     // its place among all transmissions
	probeStamp uint32     // its timestamp
	silence    int        // probes since anything arrived
	progress   clock.Time // when anything arrived, or began to be outstanding
	busyUntil  clock.Time
	busyRounds int
	pauseUntil clock.Time // until then the peer has not added this endpoint
	pauses     int
}

// packetState is the state of a packet.
type packetState uint8

const (
	free packetState = iota
	inFlight
	isLost
	isBusy
	done
)

type outPacket struct {
	state    packetState
	skip     bool   // A skip replaces it.
	skipped  bool   // and was sent
	hole     bool   // its bytes count as missing
	hinted   bool   // It was sent again for an unauthenticated trimmed header.
	why      reason // Why it was sent again.
	trimmed  bool   // The header of the latest transmission was reported.
	sends    uint8
	tries    uint8 // losses since the peer last answered for it
	size     uint16
	path     int16
	message  uint32
	position uint32
	sent     clock.Time
	order    uint64 // of the latest transmission
	before   uint16 // neighbours in a list
	after    uint16
}

func (e *Engine) newOutbound(p *peer) *outbound {
	o := &outbound{
		engine:   e,
		peer:     p,
		port:     p.Port + uint8(int(e.config.Port)%wire.RDEngines%p.Engines),
		paths:    e.config.Paths(),
		first:    firstMessage(e.config.Life),
		una:      firstPSN(e.config.Life),
		room:     max(p.Room, minRoom),
		deadline: clock.Never,
	}
	o.last, o.next, o.limit = o.first, o.una, o.una+Window
	o.probes = make([]clock.Time, o.paths.Paths().Len())
	o.late.reset()
	if e.config.Control != nil {
		o.control = e.config.Control(p.number)
	}
	return o
}

// post accepts a message. It returns false if there is no room.
func (o *outbound) post(m *Message, now clock.Time) bool {
	if o.last-o.first == Messages {
		return false
	}
	if o.idle() {
		o.progress, o.silence = now, 0
	}
	m.Number = o.last
	total := o.take(m).total
	if total > uint32(quantum*o.engine.config.Payload) {
		o.long.push(o.last)
	} else {
		o.short.push(o.last)
	}
	o.last++
	o.deadline = min(o.deadline, now)
	if o.control != nil {
		o.control.Wanted(now, int(total))
	}
	return true
}

// line is a queue of messages with unsent packets, in order. Messages of at most a quantum of
// packets have their own line, so that they do not wait for long ones. Within a line each message
// is sent whole before the next.
type line struct {
	numbers [Messages]uint32
	first   int
	count   int
}

func (l *line) push(number uint32) {
	l.numbers[(l.first+l.count)%Messages] = number
	l.count++
}

func (l *line) head() uint32 { return l.numbers[l.first] }

func (l *line) pop() uint32 {
	number := l.head()
	l.first = (l.first + 1) % Messages
	l.count--
	return number
}

// line returns the current line: the lines alternate after a quantum of packets.
func (o *outbound) line() *line {
	if o.turn >= quantum || o.longs && o.long.count == 0 || !o.longs && o.short.count == 0 {
		o.turn = 0
		o.longs = o.long.count > 0 && (!o.longs || o.short.count == 0)
	}
	if o.longs {
		return &o.long
	}
	return &o.short
}

// fresh returns the message whose packet is sent next for the first time.
func (o *outbound) fresh() *outMessage { return &o.messages[o.line().head()%Messages] }

// withdraw removes a message from its line.
func (o *outbound) withdraw(number uint32) {
	for _, l := range []*line{&o.long, &o.short} {
		for range l.count {
			if at := l.pop(); at != number {
				l.push(at)
			}
		}
	}
}

// idle reports that no message is outstanding.
func (o *outbound) idle() bool { return o.first == o.last }

// sendable reports that a packet may be sent, apart from its pace.
func (o *outbound) sendable(now clock.Time) bool {
	if o.pauseUntil > now || o.flight.count >= o.room {
		return false
	}
	if o.lost.count > 0 {
		return true
	}
	return o.long.count+o.short.count > 0 && !o.full()
}

// full reports that no packet may be sent for the first time.
func (o *outbound) full() bool {
	return o.next.From(o.una) >= Window || o.next.From(o.limit) >= 0
}

// nextBytes is the length in bytes of the packet that send would write.
func (o *outbound) nextBytes() int {
	if o.lost.count > 0 {
		if k := &o.packets[o.lost.first]; !k.skip {
			return wire.RDDataLen + int(k.size)
		}
		return wire.RDSkipLen
	}
	m := o.fresh()
	if m.err != nil {
		return wire.RDSkipLen
	}
	return wire.RDDataLen + min(o.engine.config.Payload, int(m.total-m.sent))
}

// send writes the packet that sendable found.
func (o *outbound) send(p *Packet, now clock.Time) {
	if o.lost.count > 0 {
		slot := o.lost.first
		o.unlink(slot)
		o.transmit(p, o.psnAt(slot), now)
		return
	}
	m := o.fresh()
	size := min(o.engine.config.Payload, int(m.total-m.sent))
	psn := o.next
	o.next++
	if m.err != nil { // canceled: one skip stands for the rest
		size, m.closed = 0, true
	}
	o.packets[psn.slot()] = outPacket{size: uint16(size), message: m.Number, position: m.sent, skip: m.closed}
	m.sent += uint32(size)
	m.begun = true
	m.packets++
	if m.whole() {
		o.line().pop()
	}
	o.turn++
	o.transmit(p, psn, now)
}

// psnAt returns the PSN of a slot in use.
func (o *outbound) psnAt(slot uint16) PSN { return o.una + PSN((slot-o.una.slot())%Window) }

// transmit writes a packet that is in no list, and puts it in flight.
func (o *outbound) transmit(p *Packet, psn PSN, now clock.Time) {
	e, k := o.engine, &o.packets[psn.slot()]
	m := &o.messages[k.message%Messages]
	e.order++
	k.order, k.sent, k.trimmed = e.order, now, false
	base := e.base(o.peer, o.port)
	base.PSN = uint32(psn)
	if m.Op == transports.OpWriteImm {
		base.Flags |= wire.RDImm
	}
	if k.sends > 0 {
		base.Flags |= wire.RDRepeat
	}
	k.sends = min(k.sends, 0xFE) + 1
	k.path = int16(o.pick(now))
	p.Peer, p.Port, p.Path, p.Class, p.Control = int(o.peer.number), o.port, int(k.path), m.Class, false
	if k.skip {
		o.writeSkip(p, base, k, m, now)
		k.skipped = true
		e.counters.Skipped++
	} else {
		if m.Droppable > 0 {
			base.Flags |= wire.RDDroppable
		}
		// Request an acknowledgement where the sender waits for one.
		o.asked = o.flight.count+1 >= o.room || o.full() || o.asks(int(k.size))
		o.ended = o.lost.count+o.long.count+o.short.count == 0
		if o.asked {
			base.Flags |= wire.RDAckRequest
		}
		base.Length = k.size
		p.Payload = m.bytes(p, int(k.position), int(k.size))
		p.header(wire.RDDataLen).EncodeData(base, &wire.RDDataFields{
			Key: m.Key, Offset: m.Offset, Message: m.Number, Total: m.total, Position: k.position,
			Imm: m.Imm, Timestamp: uint32(now), Sum: wire.RDSum(p.Payload),
		})
		if k.sends == 1 {
			e.counters.Sent++
			e.counters.SentBytes += uint64(k.size)
		} else {
			e.counters.Repeated++
			e.counters.Repeats.count(k.why, k.size)
			o.doubtful++
			o.repeated = o.repeated || !k.hinted // if hinted, the first transmission may have arrived in time
		}
	}
	if o.flight.count == 0 {
		o.silence, o.progress = 0, now // no answer was expected before
	}
	o.link(&o.flight, psn.slot(), inFlight)
	if o.control != nil {
		o.control.Sent(now, int(k.size))
	}
	o.schedule(now)
}

// pick returns the path of the next packet.
func (o *outbound) pick(now clock.Time) int {
	if o.pathLeft == 0 {
		o.path, o.pathLeft = o.paths.Pick(now), o.engine.config.Grain
	}
	o.pathLeft--
	return o.path
}

func (o *outbound) writeSkip(p *Packet, base wire.RDBase, k *outPacket, m *outMessage, now clock.Time) {
	skip := wire.RDSkipFields{Count: 1, Message: m.Number, Total: m.total, Imm: m.Imm, Timestamp: uint32(now),
		Bytes: uint32(k.size), Position: k.position}
	if m.err == nil {
		base.Flags |= wire.RDDroppable
	} else {
		m.told = true
	}
	p.Payload = nil
	p.header(wire.RDSkipLen).EncodeSkip(base, &skip)
}

// end ends a packet that has arrived, or that a skip replaced.
func (o *outbound) end(psn PSN) {
	k := &o.packets[psn.slot()]
	o.unlink(psn.slot())
	k.state = done
	m := &o.messages[k.message%Messages]
	m.packets--
	if m.packets == 0 && m.whole() {
		o.finish(m)
	}
}
