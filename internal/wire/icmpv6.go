package wire

import "encoding/binary"

// Layout of an ICMPv6 message, RFC 4443, and of neighbour discovery, RFC 4861:
// offsets in bytes. Type, code, checksum and echo stand as in ICMPv4.
const (
	icmpv6MTU = 4 // of packet too big, 4 bytes
	ndFlags   = 4 // of a neighbour advertisement
	ndTarget  = 8
	ndOptions = 24

	// NeighborLen is a neighbour solicitation or advertisement without
	// options, in bytes.
	NeighborLen = 24
	// LinkAddressLen is the option with an Ethernet address, in bytes.
	LinkAddressLen = 8

	// ndMaxOptions bounds the walk over options; RFC 4861 defines one for
	// these messages.
	ndMaxOptions = 8
)

// Types and codes: RFC 4443 and RFC 4861.
const (
	ICMPv6Unreachable           = 1
	ICMPv6PacketTooBig          = 2
	ICMPv6TimeExceeded          = 3
	ICMPv6Echo                  = 128
	ICMPv6EchoReply             = 129
	ICMPv6NeighborSolicitation  = 135
	ICMPv6NeighborAdvertisement = 136

	ICMPv6NoRoute            = 0 // codes of Unreachable
	ICMPv6AdminProhibited    = 1
	ICMPv6AddressUnreachable = 3
	ICMPv6PortUnreachable    = 4
	ICMPv6HopLimitExceeded   = 0 // codes of TimeExceeded
	ICMPv6ReassemblyFailed   = 1
)

// Options of neighbour discovery: RFC 4861, 4.6.1.
const (
	SourceLinkAddress = 1
	TargetLinkAddress = 2
)

// Flags of a neighbour advertisement: RFC 4861, 4.4.
const (
	NeighborRouter    = 0x80
	NeighborSolicited = 0x40
	NeighborOverride  = 0x20
)

// ICMPv6 is an ICMPv6 message, from the end of the last extension header on.
type ICMPv6 []byte

// Valid says that the bytes hold an ICMPv6 header, and of neighbour
// solicitation and advertisement the target, too.
func (m ICMPv6) Valid() bool {
	return len(m) >= ICMPLen && (!m.IsNeighbor() || len(m) >= NeighborLen)
}

// IsNeighbor says that the message is a neighbour solicitation or
// advertisement. It is valid only when its packet's hop limit is 255: RFC 4861,
// 7.1.
func (m ICMPv6) IsNeighbor() bool {
	return m.Type() == ICMPv6NeighborSolicitation || m.Type() == ICMPv6NeighborAdvertisement
}

// IsError says that the message is an error, about which no other error may be
// sent: RFC 4443, 2.4(e).
func (m ICMPv6) IsError() bool { return m.Type() < 128 }

// Type is the message's type.
func (m ICMPv6) Type() uint8 { return m[icmpType] }

// Code is the message's code, which depends on its type.
func (m ICMPv6) Code() uint8 { return m[icmpCode] }

// Checksum is the checksum as it stands.
func (m ICMPv6) Checksum() uint16 { return binary.BigEndian.Uint16(m[icmpChecksum:]) }

// ID is the identifier of an echo.
func (m ICMPv6) ID() uint16 { return binary.BigEndian.Uint16(m[icmpID:]) }

// Seq is the sequence number of an echo.
func (m ICMPv6) Seq() uint16 { return binary.BigEndian.Uint16(m[icmpSeq:]) }

// MTU is the MTU of the next hop, in bytes, in a packet too big message.
func (m ICMPv6) MTU() uint32 { return binary.BigEndian.Uint32(m[icmpv6MTU:]) }

// Body is what follows the header: an echo's data, or the packet that an error
// is about, from its IP header on.
func (m ICMPv6) Body() []byte { return m[ICMPLen:] }

// Target is the address that a neighbour solicitation asks for or an
// advertisement is about.
func (m ICMPv6) Target() [16]byte { return [16]byte(m[ndTarget : ndTarget+16]) }

// NeighborFlags are the flags of a neighbour advertisement.
func (m ICMPv6) NeighborFlags() uint8 { return m[ndFlags] & 0xE0 }

// LinkAddress looks for an option of a neighbour solicitation or advertisement
// with an Ethernet address, SourceLinkAddress or TargetLinkAddress.
func (m ICMPv6) LinkAddress(option uint8) (MAC, bool) {
	for rest, n := m[ndOptions:], 0; len(rest) >= LinkAddressLen && n < ndMaxOptions; n++ {
		length := int(rest[1]) * 8
		if length == 0 || length > len(rest) {
			break
		}
		if rest[0] == option && length == LinkAddressLen {
			return MAC(rest[2:LinkAddressLen]), true
		}
		rest = rest[length:]
	}
	return MAC{}, false
}

// FillChecksum computes the checksum over all the bytes, which must be the
// message and no more, and sets it.
func (m ICMPv6) FillChecksum(src, dst [16]byte) {
	binary.BigEndian.PutUint16(m[icmpChecksum:], 0)
	sum := ^Sum(m, PseudoIPv6(src, dst, ProtocolICMPv6, len(m)))
	binary.BigEndian.PutUint16(m[icmpChecksum:], sum)
}

// ChecksumValid says that the checksum over all the bytes, which must be the
// message and no more, is right.
func (m ICMPv6) ChecksumValid(src, dst [16]byte) bool {
	return Sum(m, PseudoIPv6(src, dst, ProtocolICMPv6, len(m))) == 0xFFFF
}

// Encode writes the header, and the checksum over all the bytes, which must be
// the message with its body and no more.
func (m ICMPv6) Encode(f *ICMPFields, src, dst [16]byte) {
	_ = m[ICMPLen-1]
	m[icmpType], m[icmpCode] = f.Type, f.Code
	binary.BigEndian.PutUint32(m[icmpRest:], f.Rest)
	m.FillChecksum(src, dst)
}

// NeighborFields are a neighbour solicitation or advertisement. It carries
// Link as the source address of a solicitation or the target address of an
// advertisement when the bytes have room for the option.
type NeighborFields struct {
	Type     uint8
	Flags    uint8 // of an advertisement
	Target   [16]byte
	Link     MAC
	Src, Dst [16]byte // of the packet, for the checksum
}

// EncodeNeighbor writes the message, checksum included, into bytes of
// NeighborLen, or NeighborLen+LinkAddressLen with the option.
func (m ICMPv6) EncodeNeighbor(f *NeighborFields) {
	_ = m[NeighborLen-1]
	clear(m[:ICMPLen])
	m[icmpType], m[ndFlags] = f.Type, f.Flags
	copy(m[ndTarget:], f.Target[:])
	if len(m) >= NeighborLen+LinkAddressLen {
		m[ndOptions], m[ndOptions+1] = SourceLinkAddress, 1
		if f.Type == ICMPv6NeighborAdvertisement {
			m[ndOptions] = TargetLinkAddress
		}
		copy(m[ndOptions+2:], f.Link[:])
	}
	m.FillChecksum(f.Src, f.Dst)
}
