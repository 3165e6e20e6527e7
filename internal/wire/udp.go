package wire

import "encoding/binary"

// Layout of a UDP header, RFC 768: offsets in bytes.
const (
	udpSrcPort  = 0
	udpDstPort  = 2
	udpLength   = 4
	udpChecksum = 6

	UDPLen = 8 // bytes of the header
)

// UDP is a UDP datagram from its header on.
type UDP []byte

// UDPFields are the fields of a UDP header. A Checksum of 0 means no checksum.
type UDPFields struct {
	SrcPort, DstPort uint16
	Length           uint16 // bytes, header included
	Checksum         uint16
}

// Valid reports whether the bytes hold the datagram that the length field specifies. The length must cover
// at least the header.
func (u UDP) Valid() bool {
	return len(u) >= UDPLen && u.Length() >= UDPLen && int(u.Length()) <= len(u)
}

// SrcPort is the source port.
func (u UDP) SrcPort() uint16 { return binary.BigEndian.Uint16(u[udpSrcPort:]) }

// DstPort is the destination port.
func (u UDP) DstPort() uint16 { return binary.BigEndian.Uint16(u[udpDstPort:]) }

// Length is the length of header and payload, in bytes.
func (u UDP) Length() uint16 { return binary.BigEndian.Uint16(u[udpLength:]) }

// Checksum is the checksum field; 0 means no checksum.
func (u UDP) Checksum() uint16 { return binary.BigEndian.Uint16(u[udpChecksum:]) }

// Payload is the datagram's payload.
func (u UDP) Payload() []byte { return u[UDPLen:u.Length()] }

// SetSrcPort sets the source port, not the checksum.
func (u UDP) SetSrcPort(p uint16) { binary.BigEndian.PutUint16(u[udpSrcPort:], p) }

// SetDstPort sets the destination port, not the checksum.
func (u UDP) SetDstPort(p uint16) { binary.BigEndian.PutUint16(u[udpDstPort:], p) }

// SetLength sets the length in bytes, header included, not the checksum.
func (u UDP) SetLength(n uint16) { binary.BigEndian.PutUint16(u[udpLength:], n) }

// SetChecksum sets the checksum field.
func (u UDP) SetChecksum(c uint16) { binary.BigEndian.PutUint16(u[udpChecksum:], c) }

// FillChecksum computes and sets the checksum, starting from the sum of the pseudo-header. A
// checksum of 0 is sent as 0xFFFF, because 0 means no checksum.
func (u UDP) FillChecksum(pseudo uint16) {
	u.SetChecksum(0)
	c := ^Sum(u[:u.Length()], pseudo)
	if c == 0 {
		c = 0xFFFF
	}
	u.SetChecksum(c)
}

// AdjustChecksum updates the checksum for a change of the payload that adds delta to its one's
// complement sum. A wrong checksum stays wrong, and a missing one stays missing. It applies RFC
// 1624 to more than one word.
func (u UDP) AdjustChecksum(delta uint16) {
	if u.Checksum() == 0 {
		return
	}
	c := ^fold(uint64(^u.Checksum()) + uint64(delta))
	if c == 0 {
		c = 0xFFFF
	}
	u.SetChecksum(c)
}

// Cut shortens the datagram to its first length bytes, header included. It sets the length, and updates the
// checksum for the removed bytes and for both lengths, the header's and the pseudo-header's. A wrong
// checksum stays wrong, and a missing one stays missing. A datagram that is not longer stays unchanged.
func (u UDP) Cut(length int) {
	old := int(u.Length())
	if length >= old {
		return
	}
	gone := Sum(u[length:old], 0)
	if length%2 != 0 {
		gone = gone<<8 | gone>>8 // RFC 1071, 2(B)
	}
	gone = fold(uint64(gone) + 2*uint64(old))
	u.SetLength(uint16(length))
	u.AdjustChecksum(fold(uint64(^gone) + 2*uint64(length)))
}

// ChecksumValid reports whether the checksum is right with this sum of the pseudo-header, or
// missing. IPv6 forbids a missing checksum except for tunnels.
func (u UDP) ChecksumValid(pseudo uint16) bool {
	return u.Checksum() == 0 || Sum(u[:u.Length()], pseudo) == 0xFFFF
}

// Encode writes the header.
func (u UDP) Encode(f *UDPFields) {
	_ = u[UDPLen-1]
	u.SetSrcPort(f.SrcPort)
	u.SetDstPort(f.DstPort)
	u.SetLength(f.Length)
	u.SetChecksum(f.Checksum)
}
