package wire

import (
	"encoding/binary"
	"fmt"
)

// Layout of an Ethernet II header, IEEE 802.3, 3.1.1: offsets in bytes.
const (
	ethernetDst  = 0
	ethernetSrc  = 6
	ethernetType = 12

	EthernetLen = 14 // bytes of the header, without preamble
	TagLen      = 4  // bytes of one 802.1Q tag

	// EthernetMinLen is the shortest frame on a real wire, in bytes, without the 4 of the frame
	// check sequence. Emulated links also carry shorter frames.
	EthernetMinLen = 60
)

// EtherTypes: IEEE 802 numbers.
const (
	EtherTypeIPv4       = 0x0800
	EtherTypeARP        = 0x0806
	EtherTypeVLAN       = 0x8100 // customer tag, 802.1Q
	EtherTypeIPv6       = 0x86DD
	EtherTypeMACControl = 0x8808 // 802.3, 31.3: pause and PFC
	EtherTypeQinQ       = 0x88A8 // service tag, 802.1ad
	EtherTypeLLDP       = 0x88CC

	// EtherTypeMin is the lowest value that is a type; lower values are the length of an 802.3
	// frame.
	EtherTypeMin = 0x0600
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the address of every station.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IsMulticast reports whether the address is a group address; broadcast is one.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

// IsLinkLocal reports whether bridges never forward frames to this address: 01:80:C2:00:00:00 to
// 0F, IEEE 802.1Q table 8-1. Pause and PFC frames go to such an address.
func (m MAC) IsLinkLocal() bool {
	return m[0] == 1 && m[1] == 0x80 && m[2] == 0xC2 && m[3] == 0 && m[4] == 0 && m[5] < 0x10
}

// String is the address as lower-case pairs with colons. It allocates.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Ethernet is a frame from its destination address on, without preamble and
// frame check sequence.
type Ethernet []byte

// EthernetFields are the fields of an Ethernet header.
type EthernetFields struct {
	Dst, Src  MAC
	EtherType uint16
}

// Valid reports whether the frame holds an Ethernet header.
func (e Ethernet) Valid() bool { return len(e) >= EthernetLen }

// Dst is the destination address.
func (e Ethernet) Dst() MAC { return MAC(e[ethernetDst : ethernetDst+6]) }

// Src is the source address.
func (e Ethernet) Src() MAC { return MAC(e[ethernetSrc : ethernetSrc+6]) }

// EtherType is the type or length field after the addresses; if there is a tag, it is the tag's
// type.
func (e Ethernet) EtherType() uint16 { return binary.BigEndian.Uint16(e[ethernetType:]) }

// Payload is the rest of the frame after the header, beginning with the tag if there is one.
func (e Ethernet) Payload() []byte { return e[EthernetLen:] }

// SetDst sets the destination address.
func (e Ethernet) SetDst(a MAC) { copy(e[ethernetDst:ethernetDst+6], a[:]) }

// SetSrc sets the source address.
func (e Ethernet) SetSrc(a MAC) { copy(e[ethernetSrc:ethernetSrc+6], a[:]) }

// SetEtherType sets the type field.
func (e Ethernet) SetEtherType(t uint16) { binary.BigEndian.PutUint16(e[ethernetType:], t) }

// Encode writes the header.
func (e Ethernet) Encode(f *EthernetFields) {
	_ = e[EthernetLen-1]
	e.SetDst(f.Dst)
	e.SetSrc(f.Src)
	e.SetEtherType(f.EtherType)
}
