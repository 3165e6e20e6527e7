package evidence

import (
	"encoding/binary"

	"railbed/capture/display"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// headers takes the fields of the headers up to TCP's or UDP's. It leaves out the headers of a packet that
// the IP packet carries: checks judge the packets that the fabric forwards. It reports whether the headers
// are right and captured. A header counts as captured if the captured bytes end in front of it.
func (d *decoder) headers(layers []display.Layer) (right bool) {
	p := &d.packet
	next, at, end := display.EthernetHeader, 0, p.Length
	for _, l := range layers[1:] {
		if l.Header != next || l.At != at {
			break
		}
		b, length := p.data[at:min(l.End, len(p.data))], 0
		switch next = display.FrameHeader; l.Header {
		case display.EthernetHeader:
			p.Group = b[0]&1 != 0
			length, next = wire.EthernetLen, p.setType(wire.Ethernet(b).EtherType())
		case display.VLANHeader:
			p.Tags++
			length, next = wire.TagLen, p.setType(binary.BigEndian.Uint16(b[2:]))
		case display.IPv4Header:
			length, next = p.ipv4(b)
		case display.IPv6Header:
			length, next = p.ipv6(b)
		case display.TCPHeader:
			length = p.tcp(b, end-at)
		case display.UDPHeader:
			length = d.udp(b, end-at)
		}
		if length == 0 {
			return false
		}
		at, end = at+length, l.End
	}
	return next == display.FrameHeader || at > 0 && at >= min(end, len(p.data))
}

// setType takes the type in an Ethernet header or a tag, and returns the header that follows.
func (p *Packet) setType(kind uint16) (next display.Header) {
	switch p.Type = kind; {
	case kind < wire.EtherTypeMin: // a length
		p.Type = 0
	case wire.IsTag(kind):
		return display.VLANHeader
	case kind == wire.EtherTypeIPv4:
		return display.IPv4Header
	case kind == wire.EtherTypeIPv6:
		return display.IPv6Header
	}
	return display.FrameHeader
}

// above returns the header of an IP protocol.
func above(protocol uint8) display.Header {
	switch protocol {
	case ProtoTCP:
		return display.TCPHeader
	case ProtoUDP:
		return display.UDPHeader
	}
	return display.FrameHeader
}

// ipv4 takes the fields of a header, and returns its length and the header that follows. The length is 0 if
// the header is wrong. No header follows in a fragment.
func (p *Packet) ipv4(h wire.IPv4) (length int, next display.Header) {
	total := int(h.TotalLength()) // 0 where the sender left it to a segmentation offload
	length = h.HeaderLength()
	if length < wire.IPv4MinLen || length > len(h) || total != 0 && total < length {
		return 0, next
	}
	p.IP, p.TTL, p.Proto, p.DSCP, p.ECN = 4, h.TTL(), h.Protocol(), h.DSCP(), h.ECN()
	src, dst := h.Src(), h.Dst()
	p.key.version = 4
	copy(p.key.Src[12:], src[:])
	copy(p.key.Dst[12:], dst[:])
	if p.Fragment = h.MoreFragments() || h.FragmentOffset() != 0; !p.Fragment {
		next = above(p.Proto)
	}
	return length, next
}

// ipv6 is ipv4 for IPv6. The length includes hop-by-hop options.
func (p *Packet) ipv6(h wire.IPv6) (length int, next display.Header) {
	protocol, options := h.NextHeader(), h[wire.IPv6Len:]
	if h.PayloadLength() == 0 && protocol != wire.ProtocolHopByHop {
		return 0, next
	}
	p.IP, p.TTL, p.Proto, p.DSCP, p.ECN = 6, h.HopLimit(), protocol, h.DSCP(), h.ECN()
	p.key.version, p.key.Src, p.key.Dst = 6, h.Src(), h.Dst()
	length = wire.IPv6Len
	switch {
	case protocol == wire.ProtocolFragment && len(options) > 0:
		p.Fragment, p.Proto = true, options[0]
	case protocol == wire.ProtocolHopByHop && len(options) > 1:
		protocol = options[0]
		length += 8 + 8*int(options[1])
	}
	return length, above(protocol)
}

// tcp takes the fields of a segment of a length on the wire, and returns the header's length, or 0 if the
// header is wrong.
func (p *Packet) tcp(h wire.TCP, whole int) (length int) {
	if !h.Valid() {
		return 0
	}
	length = h.HeaderLength()
	flags := h.Flags()
	p.Seq, p.Ack, p.Window = h.Seq(), h.Ack(), h.Window()
	p.SYN, p.FIN, p.PSH = flags&wire.TCPSYN != 0, flags&wire.TCPFIN != 0, flags&wire.TCPPSH != 0
	p.ACK, p.ECE = flags&wire.TCPACK != 0, flags&wire.TCPECE != 0
	p.Scale = -1
	if shift, has := h.WindowScale(); has && p.SYN {
		p.Scale = int8(shift)
	}
	p.Payload, p.Segment = max(0, whole-length), h[length:]
	p.key.sport, p.key.dport = h.SrcPort(), h.DstPort()
	return length
}

// udp is tcp for a datagram of UDP. It takes the fields of a protocol over UDP, too.
func (d *decoder) udp(h wire.UDP, whole int) (length int) {
	p, said := &d.packet, int(h.Length())
	if said != 0 && said < wire.UDPLen {
		return 0
	}
	p.Payload = max(0, whole-wire.UDPLen)
	p.key.sport, p.key.dport = h.SrcPort(), h.DstPort()
	payload, size := h[wire.UDPLen:], min(p.Payload, max(0, said-wire.UDPLen))
	switch {
	case wire.IsPortRD(p.key.dport):
		d.datagram(payload, size)
	case (p.key.dport == wire.PortAggregation || p.key.sport == wire.PortAggregation) &&
		len(payload) >= wire.AggregationLen:
		p.Aggregation = wire.Aggregation(payload)
	case p.key.dport == infiniband.Port:
		d.transport(payload, size)
	}
	return wire.UDPLen
}
