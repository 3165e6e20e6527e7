package wire

import "encoding/binary"

// Layout of a TCP header, RFC 9293, 3.1: offsets in bytes.
const (
	tcpSrcPort  = 0
	tcpDstPort  = 2
	tcpSeq      = 4
	tcpAck      = 8
	tcpOffset   = 12
	tcpFlags    = 13
	tcpWindow   = 14
	tcpChecksum = 16
	tcpUrgent   = 18

	TCPMinLen = 20 // bytes of a header without options

	// TCPChecksumAt is the offset of the checksum in a TCP header, in bytes.
	TCPChecksumAt = tcpChecksum
)

// TCPFlags are the control bits of TCP.
type TCPFlags uint8

// Control bits: RFC 9293, 3.1, and RFC 3168 for the first two.
const (
	TCPCWR TCPFlags = 0x80
	TCPECE TCPFlags = 0x40
	TCPURG TCPFlags = 0x20
	TCPACK TCPFlags = 0x10
	TCPPSH TCPFlags = 0x08
	TCPRST TCPFlags = 0x04
	TCPSYN TCPFlags = 0x02
	TCPFIN TCPFlags = 0x01
)

// TCP is a TCP segment from its header on.
type TCP []byte

// TCPFields are the fields of a TCP header.
type TCPFields struct {
	SrcPort, DstPort uint16
	Seq, Ack         uint32
	HeaderLength     int // bytes, a multiple of 4; 0 means 20
	Flags            TCPFlags
	Window           uint16
	Checksum         uint16
	Urgent           uint16
}

// Valid reports whether the bytes hold a TCP header with its options.
func (t TCP) Valid() bool {
	return len(t) >= TCPMinLen && t.HeaderLength() >= TCPMinLen && t.HeaderLength() <= len(t)
}

// SrcPort is the source port.
func (t TCP) SrcPort() uint16 { return binary.BigEndian.Uint16(t[tcpSrcPort:]) }

// DstPort is the destination port.
func (t TCP) DstPort() uint16 { return binary.BigEndian.Uint16(t[tcpDstPort:]) }

// Seq is the sequence number of the first byte.
func (t TCP) Seq() uint32 { return binary.BigEndian.Uint32(t[tcpSeq:]) }

// Ack is the next sequence number that the sender expects.
func (t TCP) Ack() uint32 { return binary.BigEndian.Uint32(t[tcpAck:]) }

// HeaderLength is the length of the header with its options, in bytes.
func (t TCP) HeaderLength() int { return int(t[tcpOffset]>>4) * 4 }

// Flags are the control bits.
func (t TCP) Flags() TCPFlags { return TCPFlags(t[tcpFlags]) }

// Window is the window field, before scaling.
func (t TCP) Window() uint16 { return binary.BigEndian.Uint16(t[tcpWindow:]) }

// Checksum is the checksum field.
func (t TCP) Checksum() uint16 { return binary.BigEndian.Uint16(t[tcpChecksum:]) }

// Options are the header's options.
func (t TCP) Options() []byte { return t[TCPMinLen:t.HeaderLength()] }

// windowScale is the kind of the option Window Scale, of which maxScale is the largest shift: RFC 7323, 2.
const windowScale, maxScale = 3, 14

// WindowScale returns the shift of windows that a SYN announces. has is false without the option, and where
// the option is not in the bytes.
func (t TCP) WindowScale() (shift int, has bool) {
	const end, nothing = 0, 1
	rest := t[TCPMinLen:min(len(t), max(TCPMinLen, t.HeaderLength()))]
	for len(rest) > 0 && rest[0] != end {
		switch {
		case rest[0] == nothing:
			rest = rest[1:]
			continue
		case len(rest) < 2 || rest[1] < 2 || int(rest[1]) > len(rest):
			return 0, false
		case rest[0] == windowScale && rest[1] == 3:
			return min(int(rest[2]), maxScale), true
		}
		rest = rest[rest[1]:]
	}
	return 0, false
}

// Payload is the segment after the header.
func (t TCP) Payload() []byte { return t[t.HeaderLength():] }

// SetChecksum sets the checksum field.
func (t TCP) SetChecksum(c uint16) { binary.BigEndian.PutUint16(t[tcpChecksum:], c) }

// FillChecksum computes and sets the checksum over all the bytes, which must be exactly the
// segment. It starts from the sum of the pseudo-header.
func (t TCP) FillChecksum(pseudo uint16) {
	t.SetChecksum(0)
	t.SetChecksum(^Sum(t, pseudo))
}

// ChecksumValid reports whether the checksum over all the bytes, which must be exactly the segment,
// is right with this sum of the pseudo-header.
func (t TCP) ChecksumValid(pseudo uint16) bool { return Sum(t, pseudo) == 0xFFFF }

// Encode writes the header without options.
func (t TCP) Encode(f *TCPFields) {
	_ = t[TCPMinLen-1]
	binary.BigEndian.PutUint16(t[tcpSrcPort:], f.SrcPort)
	binary.BigEndian.PutUint16(t[tcpDstPort:], f.DstPort)
	binary.BigEndian.PutUint32(t[tcpSeq:], f.Seq)
	binary.BigEndian.PutUint32(t[tcpAck:], f.Ack)
	t[tcpOffset] = uint8(max(f.HeaderLength, TCPMinLen)/4) << 4
	t[tcpFlags] = uint8(f.Flags)
	binary.BigEndian.PutUint16(t[tcpWindow:], f.Window)
	t.SetChecksum(f.Checksum)
	binary.BigEndian.PutUint16(t[tcpUrgent:], f.Urgent)
}
