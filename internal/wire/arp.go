package wire

import "encoding/binary"

// Layout of an ARP packet for IPv4 over Ethernet, RFC 826: offsets in bytes.
const (
	arpHardware  = 0
	arpProtocol  = 2
	arpLengths   = 4
	arpOperation = 6
	arpSenderMAC = 8
	arpSenderIP  = 14
	arpTargetMAC = 18
	arpTargetIP  = 24

	ARPLen = 28 // bytes of the packet
)

// Operations: RFC 826.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is an ARP packet for IPv4 over Ethernet.
type ARP []byte

// ARPFields are the fields of an ARP packet.
type ARPFields struct {
	Operation            uint16
	SenderMAC, TargetMAC MAC
	SenderIP, TargetIP   [4]byte
}

// Valid reports whether the bytes hold an ARP packet for IPv4 over Ethernet; other kinds of ARP are
// not valid.
func (a ARP) Valid() bool {
	return len(a) >= ARPLen && binary.BigEndian.Uint64(a)>>16 == 0x0001_0800_0604
}

// Operation is ARPRequest, ARPReply or another value.
func (a ARP) Operation() uint16 { return binary.BigEndian.Uint16(a[arpOperation:]) }

// SenderMAC is the sender's Ethernet address.
func (a ARP) SenderMAC() MAC { return MAC(a[arpSenderMAC : arpSenderMAC+6]) }

// SenderIP is the sender's IPv4 address.
func (a ARP) SenderIP() [4]byte { return [4]byte(a[arpSenderIP : arpSenderIP+4]) }

// TargetMAC is the target's Ethernet address; it has no meaning in a request.
func (a ARP) TargetMAC() MAC { return MAC(a[arpTargetMAC : arpTargetMAC+6]) }

// TargetIP is the requested IPv4 address, or in a reply the requester's.
func (a ARP) TargetIP() [4]byte { return [4]byte(a[arpTargetIP : arpTargetIP+4]) }

// Encode writes the packet.
func (a ARP) Encode(f *ARPFields) {
	_ = a[ARPLen-1]
	binary.BigEndian.PutUint16(a[arpHardware:], 1) // Ethernet
	binary.BigEndian.PutUint16(a[arpProtocol:], EtherTypeIPv4)
	a[arpLengths], a[arpLengths+1] = 6, 4
	binary.BigEndian.PutUint16(a[arpOperation:], f.Operation)
	copy(a[arpSenderMAC:], f.SenderMAC[:])
	copy(a[arpSenderIP:], f.SenderIP[:])
	copy(a[arpTargetMAC:], f.TargetMAC[:])
	copy(a[arpTargetIP:], f.TargetIP[:])
}
