package wire

import "encoding/binary"

// Layout of an IPv6 header, RFC 8200, 3: offsets in bytes.
const (
	ipv6VersionClassFlow = 0
	ipv6PayloadLength    = 4
	ipv6NextHeader       = 6
	ipv6HopLimit         = 7
	ipv6Src              = 8
	ipv6Dst              = 24

	IPv6Len = 40 // bytes of the header without extension headers

	ipv6FlowMask = 0x000F_FFFF

	// MaxExtensions is the largest number of extension headers that a walk passes. RFC 8200, 4.1,
	// names six kinds, one of which may occur twice. More than eight only add work for
	// routers.
	MaxExtensions = 8
	fragmentLen   = 8
)

// IPv6 is an IPv6 packet from its header on.
type IPv6 []byte

// IPv6Fields are the fields of an IPv6 header.
type IPv6Fields struct {
	DSCP          uint8 // 0 to 63
	ECN           ECN
	FlowLabel     uint32 // 20 bits
	PayloadLength uint16 // bytes after the 40 of this header
	NextHeader    uint8
	HopLimit      uint8
	Src, Dst      [16]byte
}

// Valid reports whether the bytes hold an IPv6 header of version 6 and its whole payload.
func (h IPv6) Valid() bool {
	return len(h) >= IPv6Len && h[0]>>4 == 6 && IPv6Len+int(h.PayloadLength()) <= len(h)
}

// TrafficClass is DSCP and ECN in one byte.
func (h IPv6) TrafficClass() uint8 { return uint8(binary.BigEndian.Uint16(h) >> 4) }

// DSCP is the differentiated services code point, 0 to 63: RFC 2474.
func (h IPv6) DSCP() uint8 { return h.TrafficClass() >> 2 }

// ECN is the congestion notification: RFC 3168.
func (h IPv6) ECN() ECN { return ECN(h.TrafficClass() & 3) }

// FlowLabel is the flow label, 20 bits: RFC 6437.
func (h IPv6) FlowLabel() uint32 { return binary.BigEndian.Uint32(h) & ipv6FlowMask }

// PayloadLength is the number of bytes after the header, including extension headers.
func (h IPv6) PayloadLength() uint16 { return binary.BigEndian.Uint16(h[ipv6PayloadLength:]) }

// NextHeader is the protocol of the next header, which may be an extension header.
func (h IPv6) NextHeader() uint8 { return h[ipv6NextHeader] }

// HopLimit is the number of remaining hops.
func (h IPv6) HopLimit() uint8 { return h[ipv6HopLimit] }

// Src is the source address.
func (h IPv6) Src() [16]byte { return [16]byte(h[ipv6Src : ipv6Src+16]) }

// Dst is the destination address.
func (h IPv6) Dst() [16]byte { return [16]byte(h[ipv6Dst : ipv6Dst+16]) }

// Payload is the packet after this header, without padding of the link.
func (h IPv6) Payload() []byte { return h[IPv6Len : IPv6Len+int(h.PayloadLength())] }

// SetTrafficClass sets DSCP and ECN. IPv6 has no header checksum, and checksums of upper layers do
// not cover these bits.
func (h IPv6) SetTrafficClass(c uint8) {
	h[0] = h[0]&0xF0 | c>>4
	h[1] = h[1]&0x0F | c<<4
}

// SetDSCP sets the DSCP, 0 to 63.
func (h IPv6) SetDSCP(dscp uint8) { h.SetTrafficClass(trafficClass(dscp, h.ECN())) }

// SetECN sets the ECN bits.
func (h IPv6) SetECN(ecn ECN) { h.SetTrafficClass(trafficClass(h.DSCP(), ecn)) }

// SetFlowLabel sets the flow label, 20 bits.
func (h IPv6) SetFlowLabel(label uint32) {
	word := binary.BigEndian.Uint32(h)
	binary.BigEndian.PutUint32(h, word&^ipv6FlowMask|label&ipv6FlowMask)
}

// SetPayloadLength sets the payload length in bytes.
func (h IPv6) SetPayloadLength(n uint16) { binary.BigEndian.PutUint16(h[ipv6PayloadLength:], n) }

// SetHopLimit sets the hop limit.
func (h IPv6) SetHopLimit(n uint8) { h[ipv6HopLimit] = n }

// DecrementHopLimit subtracts one from the hop limit; 0 stays. It returns the new hop limit: a
// router that gets 0 drops the packet (RFC 8200, 3).
func (h IPv6) DecrementHopLimit() uint8 {
	if h[ipv6HopLimit] > 0 {
		h[ipv6HopLimit]--
	}
	return h[ipv6HopLimit]
}

// Encode writes the header.
func (h IPv6) Encode(f *IPv6Fields) {
	_ = h[IPv6Len-1]
	class := uint32(trafficClass(f.DSCP, f.ECN))
	binary.BigEndian.PutUint32(h[ipv6VersionClassFlow:], 6<<28|class<<20|f.FlowLabel&ipv6FlowMask)
	h.SetPayloadLength(f.PayloadLength)
	h[ipv6NextHeader] = f.NextHeader
	h[ipv6HopLimit] = f.HopLimit
	copy(h[ipv6Src:ipv6Src+16], f.Src[:])
	copy(h[ipv6Dst:ipv6Dst+16], f.Dst[:])
}

// Upper is the result of a walk over extension headers.
type Upper struct {
	// Protocol is the upper layer's. If the walk could not pass an extension header, Protocol is
	// the number of that header.
	Protocol uint8
	// Offset is the offset of the upper layer, or of the header that could not be passed, in bytes
	// from the start of the walk.
	Offset int
	// Fragment is set if there is a fragment header. FragmentOffset is the offset of this fragment
	// in the whole packet, in bytes. A fragment with an offset above 0 has no upper-layer header:
	// its data begin at Offset.
	Fragment       bool
	MoreFragments  bool
	FragmentOffset int
}

// SkipExtensions walks from the first next header of an IPv6 packet over the bytes after the IPv6
// header. It returns false if an extension header is truncated or there are more than
// MaxExtensions. ESP ends the walk, because the headers after it are encrypted. So does a fragment
// other than the first.
func SkipExtensions(next uint8, b []byte) (u Upper, ok bool) {
	u.Protocol = next
	for range MaxExtensions {
		rest := b[u.Offset:]
		var length int
		switch u.Protocol {
		case ProtocolHopByHop, ProtocolRouting, ProtocolDestination, ProtocolMobility, ProtocolHIP,
			ProtocolShim6:
			if len(rest) < 2 {
				return u, false
			}
			length = (int(rest[1]) + 1) * 8
		case ProtocolAH: // counts in 4 bytes, less 2: RFC 4302, 2.2
			if len(rest) < 2 {
				return u, false
			}
			length = (int(rest[1]) + 2) * 4
		case ProtocolFragment:
			length = fragmentLen
		default:
			return u, true
		}
		if len(rest) < length {
			return u, false
		}
		if u.Protocol == ProtocolFragment {
			word := binary.BigEndian.Uint16(rest[2:])
			u.Fragment, u.MoreFragments, u.FragmentOffset = true, word&1 != 0, int(word&^7)
		}
		u.Protocol = rest[0]
		u.Offset += length
		if u.FragmentOffset > 0 {
			return u, true
		}
	}
	return u, !isExtension(u.Protocol)
}

// isExtension reports whether SkipExtensions passes a next header.
func isExtension(protocol uint8) bool {
	switch protocol {
	case ProtocolHopByHop, ProtocolRouting, ProtocolFragment, ProtocolAH, ProtocolDestination,
		ProtocolMobility, ProtocolHIP, ProtocolShim6:
		return true
	}
	return false
}
