package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// sums lists which checksums of a frame are right.
type sums struct{ ip, transport, icrc bool }

// rightSums checks the checksums of a frame that is no fragment.
func rightSums(one *packet.Packet) (s sums) {
	h := &one.Headers
	if h.Verdict != wire.WellFormed || h.Has(wire.Fragment) {
		return s
	}
	s.ip = h.Has(wire.IsIPv4)
	body, pseudo := transportOf(one)
	switch h.Protocol {
	case wire.ProtocolUDP:
		udp := wire.UDP(body)
		s.transport = udp.Checksum() != 0 && udp.ChecksumValid(pseudo)
	case wire.ProtocolTCP:
		s.transport = wire.TCP(body).ChecksumValid(pseudo)
	case wire.ProtocolICMPv4:
		s.transport = wire.ICMPv4(body).ChecksumValid()
	case wire.ProtocolICMPv6:
		s.transport = wire.ICMPv6(body).ChecksumValid(h.Src, h.Dst)
	}
	if packet, headers := roceOf(one); packet.Valid() {
		s.icrc = packet.ICRCValid(headers)
	}
	return s
}

// fill computes again the checksums that were right.
func (s sums) fill(one *packet.Packet) {
	h := &one.Headers
	if s.ip && h.Verdict == wire.BadChecksum {
		wire.IPv4(one.Data[h.L3:]).FillChecksum()
		one.Parse()
	}
	if h.Verdict != wire.WellFormed {
		return
	}
	if packet, headers := roceOf(one); s.icrc && packet.Valid() {
		packet.Seal(headers)
	}
	body, pseudo := transportOf(one)
	switch {
	case !s.transport:
	case h.Protocol == wire.ProtocolUDP:
		wire.UDP(body).FillChecksum(pseudo)
	case h.Protocol == wire.ProtocolTCP:
		wire.TCP(body).FillChecksum(pseudo)
	case h.Protocol == wire.ProtocolICMPv4:
		wire.ICMPv4(body).FillChecksum()
	case h.Protocol == wire.ProtocolICMPv6:
		wire.ICMPv6(body).FillChecksum(h.Src, h.Dst)
	}
}

// transportOf returns the bytes from the transport's header on, and the sum of its pseudo-header.
func transportOf(one *packet.Packet) (body []byte, pseudo uint16) {
	h := &one.Headers
	body = one.Data[h.L4:h.End]
	if h.Has(wire.IsIPv4) {
		return body, wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]), h.Protocol, len(body))
	}
	return body, wire.PseudoIPv6(h.Src, h.Dst, h.Protocol, len(body))
}

// roceOf returns a packet of RoCEv2 and the headers that its ICRC covers, or nothing.
func roceOf(one *packet.Packet) (p infiniband.Packet, headers []byte) {
	h := &one.Headers
	if h.Protocol != wire.ProtocolUDP || h.DstPort != infiniband.Port || h.Has(wire.HasOptions) ||
		h.Has(wire.Fragment) {
		return nil, nil
	}
	return infiniband.Packet(one.Data[h.Payload:h.End]), one.Data[h.L3:h.Payload]
}
