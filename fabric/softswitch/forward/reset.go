package forward

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// reset answers a TCP segment to one of the router's addresses with a reset, because no port is
// open: RFC 9293, 3.10.7.1.
func (r *router) reset(now clock.Time, one *packet.Packet) Decision {
	h := &one.Headers
	v4 := h.Has(wire.IsIPv4)
	segment := wire.TCP(one.Data[h.L4:h.End])
	if !segment.ChecksumValid(pseudoTCP(h.Src, h.Dst, v4, len(segment))) {
		return Decision{Reason: Malformed}
	}
	back := r.lookup(&h.Src, v4).usable()
	if h.TCPFlags&wire.TCPRST != 0 || back == nil || back.kind != routed || !r.answers.take(now, 1) {
		return Decision{Reason: Consumed}
	}
	fields := wire.TCPFields{SrcPort: h.DstPort, DstPort: h.SrcPort, Flags: wire.TCPRST}
	if h.TCPFlags&wire.TCPACK != 0 {
		fields.Seq = segment.Ack()
	} else {
		fields.Flags |= wire.TCPACK
		fields.Ack = segment.Seq() + uint32(len(segment.Payload()))
		for _, counted := range []wire.TCPFlags{wire.TCPSYN, wire.TCPFIN} {
			if h.TCPFlags&counted != 0 {
				fields.Ack++
			}
		}
	}
	header := wire.EthernetLen + wire.IPv6Len
	if v4 {
		header = wire.EthernetLen + wire.IPv4MinLen
	}
	reply := r.get(one, header+wire.TCPMinLen)
	if reply == nil {
		return Decision{Reason: Consumed}
	}
	answer := wire.TCP(reply.Data[header:])
	answer.Encode(&fields)
	answer.FillChecksum(pseudoTCP(h.Dst, h.Src, v4, len(answer)))
	if v4 {
		r.header4(reply, wire.ProtocolTCP, h.Dst, h.Src, 0)
	} else {
		r.header6(reply, wire.ProtocolTCP, h.Dst, h.Src, 0)
	}
	return r.answer(now, reply, back, Consumed)
}

func pseudoTCP(src, dst [16]byte, v4 bool, length int) uint16 {
	if v4 {
		return wire.PseudoIPv4([4]byte(src[12:]), [4]byte(dst[12:]), wire.ProtocolTCP, length)
	}
	return wire.PseudoIPv6(src, dst, wire.ProtocolTCP, length)
}
