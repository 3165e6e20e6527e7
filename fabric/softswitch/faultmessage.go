package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// maxMessages bounds the messages and queue pairs that a fault keeps at a port. Transports have fewer
// messages under way between two nodes. If there are more, a fault forgets the oldest. If that message goes
// on, it counts as another message.
const maxMessages = 1 << 14

// messages numbers the messages that pass a port: those of reliable datagrams, and those of connected queue
// pairs (RC and UC).
type messages struct {
	count uint64 // of the messages that matched so far
	seen  map[messageKey]*message
	order []messageKey // of seen, a ring once it is full
	next  int          // the oldest of a full ring
}

// messageKey identifies a message of reliable datagrams, or the messages to a queue pair.
type messageKey struct {
	src, dst [16]byte
	// A reliable datagram has the life of its sender, two engines and a message. A packet of RoCEv2 has the
	// destination's queue pair.
	life    uint64
	engines [2]uint8
	message uint32
	pair    infiniband.QPN
	// answers is set for the responses to a requester, which have PSNs of their own.
	answers bool
}

// message is a message of reliable datagrams, or the latest message to a queue pair.
type message struct {
	number uint64 // 0 until a packet matches
	psn    infiniband.PSN
	begun  bool // psn is set
}

// numberOf returns the number of a packet's message, from 1. A message gets its number with its first packet
// that matches. It returns 0 for other packets, and for packets that were sent before.
func (m *messages) numberOf(one *packet.Packet, matches bool) uint64 {
	h := &one.Headers
	if h.Protocol != wire.ProtocolUDP || h.Verdict != wire.WellFormed || h.Has(wire.Fragment) {
		return 0
	}
	key := messageKey{src: h.Src, dst: h.Dst}
	of := (*message)(nil)
	switch payload := one.Data[h.Payload:h.End]; {
	case wire.IsPortRD(h.DstPort):
		of = m.ofDatagram(key, payload)
	case h.DstPort == infiniband.Port:
		of = m.ofPair(key, payload)
	}
	if of == nil {
		return 0
	}
	if of.number == 0 && matches {
		m.count++
		of.number = m.count
	}
	return of.number
}

func (m *messages) ofDatagram(key messageKey, payload []byte) *message {
	if block := wire.INT(payload); block.Valid() {
		payload = payload[block.Len():]
	}
	rd := wire.RD(payload)
	if !rd.HasBase() || rd.Version() != wire.RDVersion || rd.Type() != wire.RDData || rd.Sealed() ||
		!rd.Formed() || rd.Flags()&wire.RDRepeat != 0 {
		return nil
	}
	base := rd.Base()
	key.life, key.engines, key.message = base.Life, [2]uint8{base.Source, base.Destination}, rd.Data().Message
	return m.get(key)
}

func (m *messages) ofPair(key messageKey, payload []byte) *message {
	p := infiniband.Packet(payload)
	if !p.Begins(len(p)) {
		return nil
	}
	opcode, bth := p.Opcode(), p.BTH()
	connected := opcode.Service() == infiniband.RC || opcode.Service() == infiniband.UC
	if !connected || !opcode.Request() && !opcode.IsRead() {
		return nil
	}
	key.pair, key.answers = bth.DestQP(), opcode.Response()
	of := m.get(key)
	if of.begun && bth.PSN().From(of.psn) <= 0 {
		return nil
	}
	if of.psn, of.begun = bth.PSN(), true; opcode.Starts() {
		of.number = 0
	}
	return of
}

// get returns a message, which it makes if it is new.
func (m *messages) get(key messageKey) *message {
	if of := m.seen[key]; of != nil {
		return of
	}
	if m.seen == nil {
		m.seen = map[messageKey]*message{}
	}
	if len(m.order) < maxMessages {
		m.order = append(m.order, key)
	} else {
		delete(m.seen, m.order[m.next])
		m.order[m.next] = key
		m.next = (m.next + 1) % maxMessages
	}
	of := new(message)
	m.seen[key] = of
	return of
}
