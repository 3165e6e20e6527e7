package queue

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
	"railbed/plan"
)

// Trimming cuts a packet for which its queue has no room down to its headers, sets another DSCP and
// puts the packet into the express queue. So the receiver detects the loss within a round trip.
// Sources: Handley et al., Re-architecting datacenter networks and stacks for low latency and high
// performance, SIGCOMM 2017. Ultra Ethernet 1.0. SAI's packet trimming, whose settings are size,
// DSCP and queue.
//
// The trimmed packet is a whole IP packet. IPv4's total length and checksum, IPv6's payload length
// and UDP's length are updated, and a priority tag gets the express queue's priority. An existing
// UDP checksum is updated for the removed bytes (RFC 1624), and never computed anew. So damage from
// earlier links stays visible, both in the remaining and in the removed bytes. NDP and Ultra
// Ethernet leave UDP's header unchanged, because their NICs read trimmed packets themselves. A
// kernel's UDP socket drops a datagram that is shorter than its length field, and a datagram over
// IPv6 without a checksum. Packet.Length keeps the original length.
//
// The header of a reliable datagram decides whether bytes may be written, and is valid only as a
// whole. So in data packets the telemetry block and the whole header after it are kept, however
// long they are, and other types are never trimmed (transports/rd/PROTOCOL.md, 2.10).
//
// Some packets are never trimmed. They are packets that were trimmed before, here or, by their
// DSCP, at another switch, and packets that are not well-formed IP packets or would not get
// shorter.

// minTransport is the least number of bytes kept after a UDP header: UEC's smallest trimmed packet
// keeps 24 bytes from the UDP header on.
const minTransport = 16

// trimmer has the settings for trimming.
type trimmer struct {
	priorities Mask
	size       int
	dscp       uint8
	queue      uint8
}

func newTrimmer(c *plan.Trim) trimmer {
	if c == nil {
		return trimmer{}
	}
	// A trimmed packet is not trimmed again.
	priorities := MaskOf(c.Priorities...) &^ MaskOf(c.Queue)
	return trimmer{priorities: priorities, size: int(c.Size), dscp: c.DSCP,
		queue: uint8(c.Queue) & (Priorities - 1)}
}

// cut tries to trim a packet that queue q refused, and returns its new queue. Otherwise the packet
// is dropped unchanged.
func (p *Port) cut(one *packet.Packet, q uint8, o *Outcome) uint8 {
	o.Dropped = true
	size, can := TrimmedLen(one, p.trim.size, p.trim.dscp)
	if !can || !p.trim.priorities.Has(q) {
		return q
	}
	express := p.trim.queue
	if p.admit(express, int64(size)) != Accepted {
		o.Reason = Express
		return q
	}
	Trim(one, size, p.trim.dscp)
	h := &one.Headers
	if h.PriorityTagged() { // the next switch checks the tag first
		tag := wire.Tag(one.Data[wire.EthernetLen-2:])
		tag.SetPriority(express)
		h.TCI = tag.TCI()
	}
	one.Priority = express
	o.Dropped, o.Queue = false, express
	return express
}

// TrimmedLen returns the length of a packet that is trimmed to at least size bytes, and whether it can be
// trimmed. Packets with this DSCP were trimmed before.
func TrimmedLen(one *packet.Packet, size int, dscp uint8) (length int, can bool) {
	h := &one.Headers
	ip := h.Verdict == wire.WellFormed && h.Flags&(wire.IsIPv4|wire.IsIPv6) != 0
	if one.Trimmed || !ip || h.DSCP == dscp {
		return 0, false
	}
	length = max(size, headersEnd(one))
	return length, length < int(h.End)
}

// Trim trims a packet to the length that TrimmedLen has returned, and sets its DSCP.
func Trim(one *packet.Packet, length int, dscp uint8) {
	shorten(one, length)
	h := &one.Headers
	if ip := one.Data[h.L3:]; h.Has(wire.IsIPv4) {
		wire.IPv4(ip).RewriteDSCP(dscp)
	} else {
		wire.IPv6(ip).SetDSCP(dscp)
	}
	h.DSCP, h.End, one.Trimmed = dscp, uint32(length), true
}

// headersEnd returns the end of the headers that must be kept, or the packet's end.
func headersEnd(one *packet.Packet) int {
	h := &one.Headers
	switch {
	case h.Protocol != wire.ProtocolUDP || h.Has(wire.LaterFragment):
		return int(h.Payload)
	case wire.IsPortRD(h.DstPort):
		return min(int(h.Payload)+rdHeaderEnd(one.Data[h.Payload:h.End]), int(h.End))
	}
	return int(h.Payload) + minTransport
}

// rdHeaderEnd returns how many bytes of a payload to a port of reliable datagrams must be kept;
// that may be more than there are.
func rdHeaderEnd(payload []byte) int {
	telemetry := 0
	if block := wire.INT(payload); block.Valid() {
		telemetry = block.Len()
	}
	if rd := wire.RD(payload[telemetry:]); rd.HasBase() && rd.Version() == wire.RDVersion &&
		rd.Type() != wire.RDData {
		return len(payload)
	}
	return telemetry + wire.RDDataLen
}

// shorten cuts a frame to size bytes, which lie within its IP packet. A fragment's transport header
// describes the whole datagram and stays unchanged. So does TCP's checksum: a receiver must drop
// the segment, and not accept it as a short one.
func shorten(one *packet.Packet, size int) {
	h := &one.Headers
	if h.Protocol == wire.ProtocolUDP && !h.Has(wire.Fragment) {
		wire.UDP(one.Data[h.L4:]).Cut(size - int(h.L4))
	}
	one.Data = one.Data[:size]
	ip := one.Data[h.L3:]
	if h.Has(wire.IsIPv4) {
		wire.IPv4(ip).RewriteTotalLength(uint16(len(ip)))
	} else {
		wire.IPv6(ip).SetPayloadLength(uint16(len(ip) - wire.IPv6Len))
	}
}
