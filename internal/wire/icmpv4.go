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

	// ICMPLen is the length of the header of ICMPv4 and ICMPv6, in bytes: type, code, checksum and
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

// ICMPFields are the fields of an ICMPv4 or ICMPv6 header. Rest is the 4 bytes after the checksum:
// EchoRest, an MTU, or 0.
type ICMPFields struct {
	Type, Code uint8
	Rest       uint32
}

// EchoRest returns the Rest of an echo request or reply of ICMPv4 or ICMPv6.
func EchoRest(id, seq uint16) uint32 { return uint32(id)<<16 | uint32(seq) }

// Valid reports whether the bytes hold an ICMPv4 header.
func (m ICMPv4) Valid() bool { return len(m) >= ICMPLen }

// Type is the message's type.
func (m ICMPv4) Type() uint8 { return m[icmpType] }

// Code is the message's code, which depends on its type.
func (m ICMPv4) Code() uint8 { return m[icmpCode] }

// Checksum is the checksum field.
func (m ICMPv4) Checksum() uint16 { return binary.BigEndian.Uint16(m[icmpChecksum:]) }

// ID is the identifier of an echo.
func (m ICMPv4) ID() uint16 { return binary.BigEndian.Uint16(m[icmpID:]) }

// Seq is the sequence number of an echo.
func (m ICMPv4) Seq() uint16 { return binary.BigEndian.Uint16(m[icmpSeq:]) }

// MTU is the MTU of the next hop, in bytes, in a fragmentation needed message: RFC 1191, 4. It is 0
// from routers older than that RFC.
func (m ICMPv4) MTU() uint16 { return binary.BigEndian.Uint16(m[icmpv4MTU:]) }

// Body is the message after the header: an echo's data, or the packet that caused an error, from
// its IP header on.
func (m ICMPv4) Body() []byte { return m[ICMPLen:] }

// IsError reports whether the message is an error; no error may be sent about an error: RFC 1812,
// 4.3.2.7.
func (m ICMPv4) IsError() bool {
	switch m.Type() {
	case ICMPv4Unreachable, ICMPv4TimeExceeded, 4, 5, 12: // source quench, redirect, parameter problem
		return true
	}
	return false
}

// FillChecksum computes and sets the checksum over all the bytes, which must be exactly the
// message.
func (m ICMPv4) FillChecksum() {
	binary.BigEndian.PutUint16(m[icmpChecksum:], 0)
	binary.BigEndian.PutUint16(m[icmpChecksum:], Checksum(m))
}

// ChecksumValid reports whether the checksum over all the bytes, which must be exactly the message,
// is right.
func (m ICMPv4) ChecksumValid() bool { return Sum(m, 0) == 0xFFFF }

// MakeReply turns an echo request into its reply and updates the checksum; a wrong checksum stays
// wrong. The caller exchanges the addresses.
func (m ICMPv4) MakeReply() {
	old := binary.BigEndian.Uint16(m[icmpType:])
	m[icmpType] = ICMPv4EchoReply
	sum := UpdateChecksum(m.Checksum(), old, binary.BigEndian.Uint16(m[icmpType:]))
	if sum == 0 && Sum(m[icmpRest:], 0) == 0 { // all zeros: see UpdateChecksum
		sum = 0xFFFF
	}
	binary.BigEndian.PutUint16(m[icmpChecksum:], sum)
}

// Encode writes the header, with the checksum over all the bytes, which must be exactly the message
// with its body.
func (m ICMPv4) Encode(f *ICMPFields) {
	_ = m[ICMPLen-1]
	m[icmpType], m[icmpCode] = f.Type, f.Code
	binary.BigEndian.PutUint32(m[icmpRest:], f.Rest)
	m.FillChecksum()
}
