package engine

import (
	"fmt"

	"railbed/fabric/clock"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
	"railbed/transports/wire"
)

// outbound is the sequence space of what goes to a peer: to one of its engines.
type outbound struct {
	engine *Engine
	peer   *peer
	port   uint8 // of that engine
	active bool

	paths    path.Chooser
	path     int          // of the next packets
	pathLeft int          // how many
	probes   []clock.Time // by path, when the probe left that has no answer yet

	first, last uint32 // messages: the oldest that is not over, behind the newest
	messages    [Messages]outMessage
	long, short line // those of which packets were never sent
	turn        int  // packets of the line whose turn it is
	longs       bool // that is the long ones'

	una, next PSN // packets: the oldest that is not over, behind the newest
	limit     PSN // the first that the peer will not take
	packets   [Window]outPacket
	flight    list // sent, in order of their latest transmission
	lost      list // to be sent again
	busy      list // refused for now
	room      int  // how many may be in flight
	under     int  // bytes of payload in flight

	control rate.Controller // nil: the engine's pacer alone says what may go
	lane    lane            // of the rate that it asks for
	told    rate.Ack        // what it is to be told of this acknowledgement

	late       lateness
	newest     uint64 // order of the latest transmission that has come
	duplicates uint32 // as the peer counts them
	repeated   bool   // data was sent again since they grew

	deadline   clock.Time // when tick has to look
	probing    bool       // a probe is to go
	asked      bool       // the latest packet asked for an answer
	ended      bool       // it was the last that there was to send
	probed     clock.Time // when the latest probe was sent
	probeOrder uint64     // its place among all transmissions
	probeStamp uint32     // its timestamp
	silence    int        // probes since anything came
	progress   clock.Time // when anything came, or began to be outstanding
	busyUntil  clock.Time
	busyRounds int
	pauseUntil clock.Time // the peer does not know of this endpoint yet
	pauses     int
}

// outMessage is a request from Post to the end of its last packet.
type outMessage struct {
	Message
	number  uint32
	sent    uint32 // bytes that have a PSN
	begun   bool   // its first packet has a PSN
	packets uint32 // that are not over
	missing uint32 // bytes that were given up
	over    bool   // completed; packets of it may still be under way
}

// whole says that every byte has a PSN, or will have none.
func (m *outMessage) whole() bool {
	return m.over || m.begun && m.sent == uint32(len(m.Local))
}

// packetState is where a packet is.
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
	skip     bool // a skip goes in its place
	skipped  bool // and went
	sends    uint8
	tries    uint8 // that were lost since the peer said anything of it
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
		engine: e, peer: p, port: p.Port + uint8(int(e.config.Port)%wire.RDEngines%p.Engines), paths: e.config.Paths(),
		first: firstMessage(e.config.Life), una: firstPSN(e.config.Life), room: max(p.Room, minRoom), deadline: clock.Never,
	}
	o.last, o.next, o.limit = o.first, o.una, o.una+Window
	o.probes = make([]clock.Time, o.paths.Paths().Len())
	o.late.reset()
	if e.config.Control != nil {
		o.control = e.config.Control(p.number)
	}
	return o
}

// post takes a message; false where there is no room.
func (o *outbound) post(m *Message, now clock.Time) bool {
	if o.last-o.first == Messages {
		return false
	}
	if o.idle() {
		o.progress, o.silence = now, 0
	}
	o.messages[o.last%Messages] = outMessage{Message: *m, number: o.last}
	if len(m.Local) > quantum*o.engine.config.Payload {
		o.long.push(o.last)
	} else {
		o.short.push(o.last)
	}
	o.last++
	o.deadline = min(o.deadline, now)
	if o.control != nil {
		o.control.Wanted(now, len(m.Local))
	}
	return true
}

// line is messages of which packets were never sent, in order. Those of at most
// a quantum of packets have a line of their own, so that they wait for no long
// one; within a line each is sent whole before the next.
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

// line is the line whose turn it is: the lines take turns of a quantum.
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

// fresh is the message of which the next packet is sent for the first time.
func (o *outbound) fresh() *outMessage { return &o.messages[o.line().head()%Messages] }

// withdraw takes a message out of its line.
func (o *outbound) withdraw(number uint32) {
	for _, l := range []*line{&o.long, &o.short} {
		for range l.count {
			if at := l.pop(); at != number {
				l.push(at)
			}
		}
	}
}

// idle says that nothing is outstanding.
func (o *outbound) idle() bool { return o.first == o.last }

// sendable says that there is a packet that may go, but for its pace.
func (o *outbound) sendable(now clock.Time) bool {
	if o.pauseUntil > now || o.flight.count >= o.room {
		return false
	}
	if o.lost.count > 0 {
		return true
	}
	return o.long.count+o.short.count > 0 && !o.full()
}

// full says that no packet may be sent for the first time.
func (o *outbound) full() bool {
	return o.next.From(o.una) >= Window || o.next.From(o.limit) >= 0
}

// nextBytes is the length of what send would send.
func (o *outbound) nextBytes() int {
	if o.lost.count > 0 {
		if k := &o.packets[o.lost.first]; !k.skip {
			return wire.RDDataLen + int(k.size)
		}
		return wire.RDSkipLen
	}
	m := o.fresh()
	return wire.RDDataLen + min(o.engine.config.Payload, len(m.Local)-int(m.sent))
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
	size := min(o.engine.config.Payload, len(m.Local)-int(m.sent))
	psn := o.next
	o.next++
	o.packets[psn.slot()] = outPacket{size: uint16(size), message: m.number, position: m.sent}
	m.sent += uint32(size)
	m.begun = true
	m.packets++
	if m.whole() {
		o.line().pop()
	}
	o.turn++
	o.transmit(p, psn, now)
}

// psnAt is the PSN of a slot in use.
func (o *outbound) psnAt(slot uint16) PSN { return o.una + PSN((slot-o.una.slot())%Window) }

// transmit writes a packet that is in no list, and puts it in flight.
func (o *outbound) transmit(p *Packet, psn PSN, now clock.Time) {
	e, k := o.engine, &o.packets[psn.slot()]
	m := &o.messages[k.message%Messages]
	e.order++
	k.order, k.sent = e.order, now
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
		if m.Droppable {
			base.Flags |= wire.RDDroppable
		}
		// An answer is asked for where the sender waits for one.
		o.asked = o.flight.count+1 >= o.room || o.full() || o.fills(int(k.size), now)
		o.ended = o.lost.count+o.long.count+o.short.count == 0
		if o.asked {
			base.Flags |= wire.RDAckRequest
		}
		base.Length = k.size
		p.Payload = m.Local[k.position:][:k.size]
		p.header(wire.RDDataLen).EncodeData(base, &wire.RDDataFields{
			Key: m.Key, Offset: m.Offset, Message: m.number, Total: uint32(len(m.Local)), Position: k.position,
			Imm: m.Imm, Timestamp: uint32(now), Sum: wire.RDSum(p.Payload),
		})
		if k.sends == 1 {
			e.counters.Sent++
			e.counters.SentBytes += uint64(k.size)
		} else {
			e.counters.Repeated++
			o.repeated = true
		}
	}
	if o.flight.count == 0 {
		o.silence, o.progress = 0, now // nobody was asked anything before
	}
	o.link(&o.flight, psn.slot(), inFlight)
	if o.control != nil {
		o.control.Sent(now, int(k.size))
	}
	o.schedule(now)
}

// pick is the path of the next packet.
func (o *outbound) pick(now clock.Time) int {
	if o.pathLeft == 0 {
		o.path, o.pathLeft = o.paths.Pick(now), o.engine.config.Grain
	}
	o.pathLeft--
	return o.path
}

func (o *outbound) writeSkip(p *Packet, base wire.RDBase, k *outPacket, m *outMessage, now clock.Time) {
	skip := wire.RDSkipFields{Count: 1, Message: m.number, Total: uint32(len(m.Local)), Imm: m.Imm, Timestamp: uint32(now), Bytes: uint32(k.size)}
	if !m.over {
		base.Flags |= wire.RDDroppable
	}
	p.Payload = nil
	p.header(wire.RDSkipLen).EncodeSkip(base, &skip)
}

// end ends a packet that has come, or whose place a skip has taken.
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

// finish completes a message whose packets are over.
func (o *outbound) finish(m *outMessage) {
	o.complete(m, nil)
	for o.first != o.last {
		m := &o.messages[o.first%Messages]
		if !m.over || m.packets > 0 {
			return
		}
		*m = outMessage{}
		o.first++
	}
}

// complete reports a message once.
func (o *outbound) complete(m *outMessage, err error) {
	if m.over {
		return
	}
	m.over = true
	c := transports.Completion{ID: m.ID, Peer: o.peer.number, Op: m.Op, Err: err}
	if err == nil {
		c.Bytes, c.Missing = len(m.Local)-int(m.missing), int(m.missing)
	}
	m.Local = m.Local[:0:0] // the caller's again
	o.engine.host.Complete(c)
}

// abandon completes everything with an error.
func (o *outbound) abandon(err error) {
	for ; o.first != o.last; o.first++ {
		o.complete(&o.messages[o.first%Messages], err)
	}
}

// giveUp gives up a message: it completes with err, and skips go in the place of its
// packets that have not come.
func (o *outbound) giveUp(m *outMessage, err error) {
	if !m.whole() {
		o.withdraw(m.number)
	}
	o.complete(m, err)
	for psn := o.una; psn != o.next; psn++ {
		k := &o.packets[psn.slot()]
		if k.state == done || k.message != m.number {
			continue
		}
		k.skip = true
		if k.state != isLost {
			o.unlink(psn.slot())
			o.link(&o.lost, psn.slot(), isLost)
		}
	}
}

// refusal is the error of a message that the peer refused.
func refusal(m *outMessage, f *wire.RDNackFields) error {
	why := map[wire.RDReason]string{
		wire.RDNoRegion: "it has no such region", wire.RDNotWritable: "the region may not be written",
		wire.RDBounds: fmt.Sprintf("the region has %d bytes, and these go to %d", f.Detail, m.Offset),
	}[f.Reason]
	return fmt.Errorf("%v %d bytes: %w: %s", m.Op, len(m.Local), transports.ErrAccess, why)
}
