package wire

import (
	"encoding/binary"
	"net/netip"
)

// maxTags is the largest number of VLAN tags that Parse passes: a service and a customer tag.
const maxTags = 2

// Verdict reports whether a frame is well formed, and if not, its first fault.
type Verdict uint8

// Verdicts of Parse, and the fields of Headers that are then set. Fields that a verdict does not
// mention are set as for WellFormed, so that a switch may still count the frame under its flow.
const (
	// WellFormed: all checked fields are right. A protocol that Parse does not support is well
	// formed.
	WellFormed Verdict = iota
	// ShortFrame: no room for the Ethernet header, a tag, or the smallest header of the EtherType's
	// protocol. L4, Payload and all IP fields are 0.
	ShortFrame
	// BadVersion: the IP version contradicts the EtherType. Fields as for ShortFrame.
	BadVersion
	// BadHeaderLength: an IPv4 header length under 20 bytes, over the total
	// length or over the frame. L4 and Payload are 0, ports are 0.
	BadHeaderLength
	// Truncated: the IP packet is longer than the frame. End is the end of the frame; fields of
	// missing headers are 0.
	Truncated
	// BadChecksum: the checksum of the IPv4 header is wrong.
	BadChecksum
	// BadExtension: IPv6 extension headers are truncated or too many. Protocol is the number of the
	// extension header at L4; ports are 0.
	BadExtension
	// ShortTransport: no room for the UDP, TCP or ICMP header. Payload equals L4; ports are 0.
	ShortTransport
	// BadTransportLength: a UDP length under 8 bytes or over the IP payload,
	// or a TCP header length under 20 bytes or over the IP payload.
	BadTransportLength

	// Verdicts is the number of verdicts.
	Verdicts = int(BadTransportLength) + 1
)

var verdictNames = [Verdicts]string{
	"well-formed", "short-frame", "bad-version", "bad-header-length", "truncated", "bad-checksum",
	"bad-extension",
	"short-transport", "bad-transport-length",
}

// String returns the verdict in words with hyphens, as in the names of counters.
func (v Verdict) String() string {
	if int(v) < Verdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// Routable reports whether a router may forward the packet. A router must drop a packet with a
// faulty IP header (RFC 1812, 5.2.2), but must not check the headers after it.
func (v Verdict) Routable() bool { return v == WellFormed || v >= BadExtension }

// Flags are properties of a frame that take one bit.
type Flags uint8

// Flags that Parse sets.
const (
	IsIPv4 Flags = 1 << iota
	IsIPv6
	Tagged        // TCI holds the outer tag's.
	Fragment      // An IP fragment, including the first.
	LaterFragment // Not the first fragment: there is no transport header, ports are 0.
	MoreFragments // Not the last fragment.
	DontFragment  // Of IPv4.
	HasOptions    // IPv4 options or IPv6 extension headers.
)

// Headers are the header fields that a switch needs. Offsets are bytes from the frame's start and
// never beyond its end.
type Headers struct {
	// Src and Dst are the IP addresses; IPv4 addresses are mapped into IPv6 (::ffff:a.b.c.d, RFC
	// 4291, 2.5.5.2).
	Src, Dst [16]byte
	// End is the end of the IP packet; any bytes after it are padding of the link. Without IP it is
	// the end of the frame.
	End uint32
	// L3 is the offset after the Ethernet header and its tags.
	L3 uint16
	// L4 is the offset after the IP header and its options or extension headers, 0 without IP. In a
	// LaterFragment it is the offset of the fragment's data.
	L4 uint16
	// Payload is the offset after the TCP, UDP (8 bytes) or ICMP (8 bytes) header. For other
	// protocols it equals L4.
	Payload uint16
	// EtherType is the type after the tags.
	EtherType uint16
	// TCI is the outer tag's control information: priority, drop eligibility and VLAN.
	TCI uint16
	// SrcPort and DstPort are the ports of TCP and UDP, 0 for all other protocols.
	SrcPort, DstPort uint16
	// Protocol is the IP protocol; in IPv6 it is the protocol after the extension headers.
	Protocol uint8
	// TTL is IPv4's time to live or IPv6's hop limit.
	TTL  uint8
	DSCP uint8 // 0 to 63
	ECN  ECN
	// TCPFlags are the control bits of TCP, 0 for all other protocols.
	TCPFlags TCPFlags
	Flags    Flags
	Verdict  Verdict
}

// Has reports whether all the flags are set.
func (h *Headers) Has(f Flags) bool { return h.Flags&f == f }

// SrcAddr is the IP source address; IPv4 addresses are unmapped. It is invalid without IP.
func (h *Headers) SrcAddr() netip.Addr { return h.addr(h.Src) }

// DstAddr is the IP destination address; IPv4 addresses are unmapped. It is invalid without IP.
func (h *Headers) DstAddr() netip.Addr { return h.addr(h.Dst) }

// PriorityTagged reports whether the outer tag has VLAN 0, which means no VLAN: the tag only
// carries a priority (IEEE 802.1Q-2018, 6.9).
func (h *Headers) PriorityTagged() bool { return h.Has(Tagged) && h.TCI&0x0FFF == 0 }

// PCP is the priority code point of the outer tag, 0 to 7, or 0 without a tag.
func (h *Headers) PCP() uint8 { return uint8(h.TCI >> 13) }

func (h *Headers) addr(a [16]byte) netip.Addr {
	switch {
	case h.Has(IsIPv4):
		return netip.AddrFrom4([4]byte(a[12:]))
	case h.Has(IsIPv6):
		return netip.AddrFrom16(a)
	}
	return netip.Addr{}
}

// Parse reads the headers of an Ethernet frame in one pass, without its
// preamble and frame check sequence. It takes any bytes, reads a bounded
// number of them, and allocates nothing.
func Parse(frame []byte) (h Headers) {
	h.End = uint32(len(frame))
	if len(frame) < EthernetLen {
		h.Verdict = ShortFrame
		return h
	}
	at := EthernetLen
	h.EtherType = binary.BigEndian.Uint16(frame[ethernetType:])
	for range maxTags {
		if !IsTag(h.EtherType) {
			break
		}
		if len(frame) < at+TagLen {
			h.Verdict = ShortFrame
			break
		}
		if h.Flags&Tagged == 0 {
			h.Flags |= Tagged
			h.TCI = binary.BigEndian.Uint16(frame[at:])
		}
		h.EtherType = binary.BigEndian.Uint16(frame[at+2:])
		at += TagLen
	}
	h.L3 = uint16(at)
	switch h.EtherType {
	case EtherTypeIPv4:
		h.ipv4(frame, at)
	case EtherTypeIPv6:
		h.ipv6(frame, at)
	case EtherTypeARP:
		h.need(frame, at+ARPLen)
	case EtherTypeMACControl:
		h.need(frame, at+pauseQuanta)
	}
	return h
}

// fail records the first fault.
func (h *Headers) fail(v Verdict) {
	if h.Verdict == WellFormed {
		h.Verdict = v
	}
}

func (h *Headers) need(frame []byte, length int) {
	if len(frame) < length {
		h.fail(ShortFrame)
	}
}

func (h *Headers) ipv4(frame []byte, at int) {
	p := frame[at:]
	if len(p) < IPv4MinLen {
		h.fail(ShortFrame)
		return
	}
	version, header := p[ipv4VersionIHL]>>4, int(p[ipv4VersionIHL]&0x0F)*4
	if version != 4 {
		h.fail(BadVersion)
		return
	}
	h.Flags |= IsIPv4
	h.Src[10], h.Src[11], h.Dst[10], h.Dst[11] = 0xff, 0xff, 0xff, 0xff
	copy(h.Src[12:], p[ipv4Src:ipv4Src+4])
	copy(h.Dst[12:], p[ipv4Dst:ipv4Dst+4])
	h.DSCP, h.ECN = p[ipv4TOS]>>2, ECN(p[ipv4TOS]&3)
	h.TTL, h.Protocol = p[ipv4TTL], p[ipv4Protocol]
	total := int(binary.BigEndian.Uint16(p[ipv4TotalLength:]))
	if header < IPv4MinLen || header > total || header > len(p) {
		h.fail(BadHeaderLength)
		return
	}
	if total > len(p) {
		h.fail(Truncated)
		total = len(p)
	}
	if header == IPv4MinLen {
		if fold(uint64(binary.BigEndian.Uint32(p))+uint64(binary.BigEndian.Uint32(p[4:]))+uint64(
			binary.BigEndian.Uint32(p[8:]))+
			uint64(binary.BigEndian.Uint32(p[12:]))+uint64(binary.BigEndian.Uint32(p[16:]))) != 0xFFFF {
			h.fail(BadChecksum)
		}
	} else {
		h.Flags |= HasOptions
		if Sum(p[:header], 0) != 0xFFFF {
			h.fail(BadChecksum)
		}
	}
	h.End, h.L4 = uint32(at+total), uint16(at+header)
	if fragment := binary.BigEndian.Uint16(p[ipv4Fragment:]); fragment != 0 {
		if fragment&ipv4DontFragment != 0 {
			h.Flags |= DontFragment
		}
		if fragment&ipv4MoreFragments != 0 {
			h.Flags |= Fragment | MoreFragments
		}
		if fragment&ipv4OffsetMask != 0 {
			h.Flags |= Fragment | LaterFragment
		}
	}
	h.transport(p[header:total])
}

func (h *Headers) ipv6(frame []byte, at int) {
	p := frame[at:]
	if len(p) < IPv6Len {
		h.fail(ShortFrame)
		return
	}
	word := binary.BigEndian.Uint32(p)
	if word>>28 != 6 {
		h.fail(BadVersion)
		return
	}
	h.Flags |= IsIPv6
	h.Src, h.Dst = [16]byte(p[ipv6Src:ipv6Src+16]), [16]byte(p[ipv6Dst:ipv6Dst+16])
	h.DSCP, h.ECN = uint8(word>>22&0x3F), ECN(word>>20&3)
	h.TTL, h.Protocol = p[ipv6HopLimit], p[ipv6NextHeader]
	total := IPv6Len + int(binary.BigEndian.Uint16(p[ipv6PayloadLength:]))
	if total > len(p) {
		h.fail(Truncated)
		total = len(p)
	}
	h.End, h.L4 = uint32(at+total), uint16(at+IPv6Len)
	payload := p[IPv6Len:total]
	if h.Protocol != ProtocolUDP && h.Protocol != ProtocolTCP && isExtension(h.Protocol) {
		h.Flags |= HasOptions
		upper, ok := SkipExtensions(h.Protocol, payload)
		h.Protocol = upper.Protocol
		h.L4 += uint16(upper.Offset)
		payload = payload[upper.Offset:]
		if upper.Fragment && (upper.MoreFragments || upper.FragmentOffset > 0) {
			h.Flags |= Fragment
		}
		if upper.MoreFragments {
			h.Flags |= MoreFragments
		}
		if upper.FragmentOffset > 0 {
			h.Flags |= LaterFragment
		}
		if !ok {
			h.fail(BadExtension)
			h.Payload = h.L4
			return
		}
	}
	h.transport(payload)
}

// transport reads the header at L4; b is the IP payload from there on.
func (h *Headers) transport(b []byte) {
	h.Payload = h.L4
	if h.Flags&LaterFragment != 0 {
		return
	}
	switch h.Protocol {
	case ProtocolUDP:
		if len(b) < UDPLen {
			h.fail(ShortTransport)
			return
		}
		h.SrcPort, h.DstPort = binary.BigEndian.Uint16(b[udpSrcPort:]),
			binary.BigEndian.Uint16(b[udpDstPort:])
		h.Payload += UDPLen
		length := int(binary.BigEndian.Uint16(b[udpLength:]))
		// A first fragment holds less than its length field specifies.
		if length < UDPLen || length > len(b) && h.Flags&Fragment == 0 {
			h.fail(BadTransportLength)
		}
	case ProtocolTCP:
		if len(b) < TCPMinLen {
			h.fail(ShortTransport)
			return
		}
		h.SrcPort, h.DstPort = binary.BigEndian.Uint16(b[tcpSrcPort:]),
			binary.BigEndian.Uint16(b[tcpDstPort:])
		h.TCPFlags = TCPFlags(b[tcpFlags])
		header := int(b[tcpOffset]>>4) * 4
		if header < TCPMinLen || header > len(b) {
			h.fail(BadTransportLength)
			header = TCPMinLen
		}
		h.Payload += uint16(header)
	case ProtocolICMPv4, ProtocolICMPv6:
		if len(b) < ICMPLen {
			h.fail(ShortTransport)
			return
		}
		h.Payload += ICMPLen
	}
}
