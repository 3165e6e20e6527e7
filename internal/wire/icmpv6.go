package wire

import "encoding/binary"

// Layout of an ICMPv6 message, RFC 4443, and of neighbour discovery, RFC 4861: offsets in bytes.
// Type, code, checksum and the echo fields have the same offsets as in ICMPv4.
const (
	icmpv6MTU = 4 // of packet too big, 4 bytes
	ndFlags   = 4 // of a neighbour advertisement
	ndTarget  = 8
	ndOptions = 24

	// NeighborLen is the length of a neighbour solicitation or advertisement without options, in
	// bytes.
	NeighborLen = 24
	// LinkAddressLen is the length of the option with an Ethernet address, in bytes.
	LinkAddressLen = 8

	// ndMaxOptions limits the walk over options; RFC 4861 defines one for these messages.
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

// Valid reports whether the bytes hold an ICMPv6 header and, in a neighbour solicitation or
// advertisement, the target.
func (m ICMPv6) Valid() bool {
	return len(m) >= ICMPLen && (!m.IsNeighbor() || len(m) >= NeighborLen)
}

// IsNeighbor reports whether the message is a neighbour solicitation or advertisement. Such a
// message is valid only if its packet's hop limit is 255: RFC 4861, 7.1.
func (m ICMPv6) IsNeighbor() bool {
	return m.Type() == ICMPv6NeighborSolicitation || m.Type() == ICMPv6NeighborAdvertisement
}

// IsError reports whether the message is an error; no error may be sent about an error: RFC 4443,
// 2.4(e).
func (m ICMPv6) IsError() bool { return m.Type() < 128 }

// Type is the message's type.
func (m ICMPv6) Type() uint8 { return m[icmpType] }

// Code is the message's code, which depends on its type.
func (m ICMPv6) Code() uint8 { return m[icmpCode] }

// Checksum is the checksum field.
func (m ICMPv6) Checksum() uint16 { return binary.BigEndian.Uint16(m[icmpChecksum:]) }

// ID is the identifier of an echo.
func (m ICMPv6) ID() uint16 { return binary.BigEndian.Uint16(m[icmpID:]) }

// Seq is the sequence number of an echo.
func (m ICMPv6) Seq() uint16 { return binary.BigEndian.Uint16(m[icmpSeq:]) }

// MTU is the MTU of the next hop, in bytes, in a packet too big message.
func (m ICMPv6) MTU() uint32 { return binary.BigEndian.Uint32(m[icmpv6MTU:]) }

// Body is the message after the header: an echo's data, or the packet that caused an error, from
// its IP header on.
func (m ICMPv6) Body() []byte { return m[ICMPLen:] }

// Target is the address in a neighbour solicitation or advertisement.
func (m ICMPv6) Target() [16]byte { return [16]byte(m[ndTarget : ndTarget+16]) }

// NeighborFlags are the flags of a neighbour advertisement.
func (m ICMPv6) NeighborFlags() uint8 { return m[ndFlags] & 0xE0 }

// LinkAddress looks in a neighbour solicitation or advertisement for an option with an Ethernet
// address, SourceLinkAddress or TargetLinkAddress.
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

// FillChecksum computes and sets the checksum over all the bytes, which must be exactly the
// message.
func (m ICMPv6) FillChecksum(src, dst [16]byte) {
	binary.BigEndian.PutUint16(m[icmpChecksum:], 0)
	sum := ^Sum(m, PseudoIPv6(src, dst, ProtocolICMPv6, len(m)))
	binary.BigEndian.PutUint16(m[icmpChecksum:], sum)
}

// ChecksumValid reports whether the checksum over all the bytes, which must be exactly the message,
// is right.
func (m ICMPv6) ChecksumValid(src, dst [16]byte) bool {
	return Sum(m, PseudoIPv6(src, dst, ProtocolICMPv6, len(m))) == 0xFFFF
}

// Encode writes the header, with the checksum over all the bytes, which must be exactly the message
// with its body.
func (m ICMPv6) Encode(f *ICMPFields, src, dst [16]byte) {
	_ = m[ICMPLen-1]
	m[icmpType], m[icmpCode] = f.Type, f.Code
	binary.BigEndian.PutUint32(m[icmpRest:], f.Rest)
	m.FillChecksum(src, dst)
}

// NeighborFields are the fields of a neighbour solicitation or advertisement. Link is the source
// address option of a solicitation or the target address option of an advertisement. It is written
// only if the bytes have room for the option.
type NeighborFields struct {
	Type     uint8
	Flags    uint8 // of an advertisement
	Target   [16]byte
	Link     MAC
	Src, Dst [16]byte // of the packet, for the checksum
}

// EncodeNeighbor writes the message with its checksum into NeighborLen bytes, or with the option
// into NeighborLen+LinkAddressLen.
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
