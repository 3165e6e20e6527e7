package wire

import "encoding/binary"

// Layout of an ICMPv4 message, RFC 792 and RFC 1191: offsets in bytes.
const (
	icmpType     = 0
	icmpCode     = 1
	icmpChecksum = 2
	icmpRest     = 4
	icmpID       = 4 // of echo
	icmpSeq      = 6 // of echo
	icmpv4MTU    = 6 // of fragmentation needed

	// ICMPLen is the header of both ICMPs, in bytes: type, code, checksum and
	// 4 bytes whose meaning depends on the type.
	ICMPLen = 8
)

// Types and codes: RFC 792.
const (
	ICMPv4EchoReply    = 0
	ICMPv4Unreachable  = 3
	ICMPv4Echo         = 8
	ICMPv4TimeExceeded = 11

	ICMPv4NetUnreachable   = 0 // codes of Unreachable
	ICMPv4HostUnreachable  = 1
	ICMPv4PortUnreachable  = 3
	ICMPv4FragNeeded       = 4
	ICMPv4AdminProhibited  = 13 // RFC 1812, 5.2.7.1
	ICMPv4TTLExceeded      = 0  // codes of TimeExceeded
	ICMPv4ReassemblyFailed = 1
)

// ICMPv4 is an ICMPv4 message.
type ICMPv4 []byte

// ICMPFields are the header of an ICMPv4 or ICMPv6 message. Rest is
// the 4 bytes behind the checksum: EchoRest, an MTU, or 0.
type ICMPFields struct {
	Type, Code uint8
	Rest       uint32
}

// EchoRest is the Rest of an echo request or reply of either ICMP.
func EchoRest(id, seq uint16) uint32 { return uint32(id)<<16 | uint32(seq) }

// Valid says that the bytes hold an ICMPv4 header.
func (m ICMPv4) Valid() bool { return len(m) >= ICMPLen }

// Type is the message's type.
func (m ICMPv4) Type() uint8 { return m[icmpType] }

// Code is the message's code, which depends on its type.
func (m ICMPv4) Code() uint8 { return m[icmpCode] }

// Checksum is the checksum as it stands.
func (m ICMPv4) Checksum() uint16 { return binary.BigEndian.Uint16(m[icmpChecksum:]) }

// ID is the identifier of an echo.
func (m ICMPv4) ID() uint16 { return binary.BigEndian.Uint16(m[icmpID:]) }

// Seq is the sequence number of an echo.
func (m ICMPv4) Seq() uint16 { return binary.BigEndian.Uint16(m[icmpSeq:]) }

// MTU is the MTU of the next hop, in bytes, in a message that fragmentation
// was needed: RFC 1191, 4. It is 0 from routers older than that.
func (m ICMPv4) MTU() uint16 { return binary.BigEndian.Uint16(m[icmpv4MTU:]) }

// Body is what follows the header: an echo's data, or the packet that an error
// is about, from its IP header on.
func (m ICMPv4) Body() []byte { return m[ICMPLen:] }

// IsError says that the message is an error, about which no other error may be
// sent: RFC 1812, 4.3.2.7.
func (m ICMPv4) IsError() bool {
	switch m.Type() {
	case ICMPv4Unreachable, ICMPv4TimeExceeded, 4, 5, 12: // source quench, redirect, parameter problem
		return true
	}
	return false
}

// FillChecksum computes the checksum over all the bytes, which must be the
// message and no more, and sets it.
func (m ICMPv4) FillChecksum() {
	binary.BigEndian.PutUint16(m[icmpChecksum:], 0)
	binary.BigEndian.PutUint16(m[icmpChecksum:], Checksum(m))
}

// ChecksumValid says that the checksum over all the bytes, which must be the
// message and no more, is right.
func (m ICMPv4) ChecksumValid() bool { return Sum(m, 0) == 0xFFFF }

// MakeReply turns an echo request into its reply, checksum updated; a wrong
// checksum stays wrong. The addresses are the caller's to exchange.
func (m ICMPv4) MakeReply() {
	old := binary.BigEndian.Uint16(m[icmpType:])
	m[icmpType] = ICMPv4EchoReply
	sum := UpdateChecksum(m.Checksum(), old, binary.BigEndian.Uint16(m[icmpType:]))
	if sum == 0 && Sum(m[icmpRest:], 0) == 0 { // all zeros: see UpdateChecksum
		sum = 0xFFFF
	}
	binary.BigEndian.PutUint16(m[icmpChecksum:], sum)
}

// Encode writes the header, and the checksum over all the bytes, which must be
// the message with its body and no more.
func (m ICMPv4) Encode(f *ICMPFields) {
	_ = m[ICMPLen-1]
	m[icmpType], m[icmpCode] = f.Type, f.Code
	binary.BigEndian.PutUint32(m[icmpRest:], f.Rest)
	m.FillChecksum()
}
