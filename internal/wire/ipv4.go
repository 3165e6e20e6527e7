package wire

import "encoding/binary"

// Layout of an IPv4 header, RFC 791, 3.1: offsets in bytes.
const (
	ipv4VersionIHL  = 0
	ipv4TOS         = 1
	ipv4TotalLength = 2
	ipv4ID          = 4
	ipv4Fragment    = 6
	ipv4TTL         = 8
	ipv4Protocol    = 9
	ipv4Checksum    = 10
	ipv4Src         = 12
	ipv4Dst         = 16

	IPv4MinLen = 20 // bytes of a header without options
	IPv4MaxLen = 60 // bytes of a header with the most options

	ipv4DontFragment  = 0x4000
	ipv4MoreFragments = 0x2000
	ipv4OffsetMask    = 0x1FFF
)

// IPv4 is an IPv4 packet from its header on.
type IPv4 []byte

// IPv4Fields are the fields of an IPv4 header. The caller writes options, between the header's
// first 20 bytes and its HeaderLength.
type IPv4Fields struct {
	HeaderLength  int   // bytes, a multiple of 4; 0 means 20
	DSCP          uint8 // 0 to 63
	ECN           ECN
	TotalLength   uint16 // bytes, header included
	ID            uint16
	DontFragment  bool
	MoreFragments bool
	Offset        uint16 // of the fragment, in bytes, a multiple of 8
	TTL           uint8
	Protocol      uint8
	Src, Dst      [4]byte
}

// Valid reports whether the bytes hold an IPv4 header of version 4 with its options. The total
// length must be neither shorter than the header nor longer than the bytes. Valid does not check
// the checksum.
func (h IPv4) Valid() bool {
	if len(h) < IPv4MinLen || h[ipv4VersionIHL]>>4 != 4 {
		return false
	}
	header, total := h.HeaderLength(), int(h.TotalLength())
	return header >= IPv4MinLen && header <= total && total <= len(h)
}

// HeaderLength is the length of the header with its options, in bytes.
func (h IPv4) HeaderLength() int { return int(h[ipv4VersionIHL]&0x0F) * 4 }

// TOS is DSCP and ECN in one byte.
func (h IPv4) TOS() uint8 { return h[ipv4TOS] }

// DSCP is the differentiated services code point, 0 to 63: RFC 2474.
func (h IPv4) DSCP() uint8 { return h[ipv4TOS] >> 2 }

// ECN is the congestion notification: RFC 3168.
func (h IPv4) ECN() ECN { return ECN(h[ipv4TOS] & 3) }

// TotalLength is the length of header and payload, in bytes.
func (h IPv4) TotalLength() uint16 { return binary.BigEndian.Uint16(h[ipv4TotalLength:]) }

// ID is the identification of the packet to which a fragment belongs.
func (h IPv4) ID() uint16 { return binary.BigEndian.Uint16(h[ipv4ID:]) }

// DontFragment reports whether routers must not fragment the packet.
func (h IPv4) DontFragment() bool { return h.fragment()&ipv4DontFragment != 0 }

// MoreFragments reports whether this is a fragment other than the last.
func (h IPv4) MoreFragments() bool { return h.fragment()&ipv4MoreFragments != 0 }

// FragmentOffset is the offset of the fragment in the packet, in bytes.
func (h IPv4) FragmentOffset() int { return int(h.fragment()&ipv4OffsetMask) * 8 }

func (h IPv4) fragment() uint16 { return binary.BigEndian.Uint16(h[ipv4Fragment:]) }

// TTL is the time to live, in hops.
func (h IPv4) TTL() uint8 { return h[ipv4TTL] }

// Protocol is the number of the payload's protocol.
func (h IPv4) Protocol() uint8 { return h[ipv4Protocol] }

// Checksum is the header's checksum field.
func (h IPv4) Checksum() uint16 { return binary.BigEndian.Uint16(h[ipv4Checksum:]) }

// Src is the source address.
func (h IPv4) Src() [4]byte { return [4]byte(h[ipv4Src : ipv4Src+4]) }

// Dst is the destination address.
func (h IPv4) Dst() [4]byte { return [4]byte(h[ipv4Dst : ipv4Dst+4]) }

// Options are the header's options, empty in most packets.
func (h IPv4) Options() []byte { return h[IPv4MinLen:h.HeaderLength()] }

// Payload is the packet's payload, without padding of the link.
func (h IPv4) Payload() []byte { return h[h.HeaderLength():h.TotalLength()] }

// ChecksumValid reports whether the header's checksum is right.
func (h IPv4) ChecksumValid() bool { return Sum(h[:h.HeaderLength()], 0) == 0xFFFF }

// SetTotalLength sets the total length in bytes, not the checksum.
func (h IPv4) SetTotalLength(n uint16) { binary.BigEndian.PutUint16(h[ipv4TotalLength:], n) }

// SetID sets the identification, not the checksum.
func (h IPv4) SetID(id uint16) { binary.BigEndian.PutUint16(h[ipv4ID:], id) }

// SetChecksum sets the checksum field.
func (h IPv4) SetChecksum(c uint16) { binary.BigEndian.PutUint16(h[ipv4Checksum:], c) }

// FillChecksum computes the header's checksum and sets it.
func (h IPv4) FillChecksum() {
	h.SetChecksum(0)
	h.SetChecksum(Checksum(h[:h.HeaderLength()]))
}

// RewriteTotalLength changes the total length, in bytes, and updates the
// checksum; a wrong checksum stays wrong. A switch that trims does this.
func (h IPv4) RewriteTotalLength(n uint16) { h.rewrite(ipv4TotalLength, n) }

// RewriteDSCP changes the DSCP, 0 to 63, and updates the checksum; a wrong
// checksum stays wrong.
func (h IPv4) RewriteDSCP(dscp uint8) { h.RewriteTOS(trafficClass(dscp, h.ECN())) }

// RewriteECN changes the ECN bits and updates the checksum; a wrong checksum
// stays wrong.
func (h IPv4) RewriteECN(ecn ECN) { h.RewriteTOS(trafficClass(h.DSCP(), ecn)) }

// RewriteTOS changes DSCP and ECN and updates the checksum; a wrong checksum
// stays wrong.
func (h IPv4) RewriteTOS(tos uint8) {
	h.rewrite(ipv4VersionIHL, uint16(h[ipv4VersionIHL])<<8|uint16(tos))
}

// DecrementTTL subtracts one from the time to live and updates the checksum; a wrong checksum stays
// wrong. A TTL of 0 stays. It returns the new TTL: a router that gets 0 drops the packet (RFC 1812,
// 5.3.1).
func (h IPv4) DecrementTTL() uint8 {
	if h[ipv4TTL] == 0 {
		return 0
	}
	h.rewrite(ipv4TTL, binary.BigEndian.Uint16(h[ipv4TTL:])-0x100)
	return h[ipv4TTL]
}

// rewrite changes the 16-bit word at an even offset and updates the checksum.
func (h IPv4) rewrite(at int, word uint16) {
	old := binary.BigEndian.Uint16(h[at:])
	binary.BigEndian.PutUint16(h[at:], word)
	h.SetChecksum(UpdateChecksum(h.Checksum(), old, word))
}

// Encode writes the header, with the checksum over HeaderLength bytes: options must already be
// there, after the first 20 bytes.
func (h IPv4) Encode(f *IPv4Fields) {
	length := max(f.HeaderLength, IPv4MinLen)
	_ = h[length-1]
	h[ipv4VersionIHL] = 4<<4 | uint8(length/4)
	h[ipv4TOS] = trafficClass(f.DSCP, f.ECN)
	h.SetTotalLength(f.TotalLength)
	binary.BigEndian.PutUint16(h[ipv4ID:], f.ID)
	fragment := f.Offset / 8
	if f.DontFragment {
		fragment |= ipv4DontFragment
	}
	if f.MoreFragments {
		fragment |= ipv4MoreFragments
	}
	binary.BigEndian.PutUint16(h[ipv4Fragment:], fragment)
	h[ipv4TTL] = f.TTL
	h[ipv4Protocol] = f.Protocol
	copy(h[ipv4Src:ipv4Src+4], f.Src[:])
	copy(h[ipv4Dst:ipv4Dst+4], f.Dst[:])
	h.FillChecksum()
}
