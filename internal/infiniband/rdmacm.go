package infiniband

import "encoding/binary"

// Layout of the head that rdma_cm puts into the private data of a REQ (Annex A11, RDMA IP CM
// service): the port and addresses of the connection. The user's data follow.
const (
	ipVersions = 0 // major 4 bits, minor 4 bits, both 0
	ipFamily   = 1 // IP version 4 bits
	ipPort     = 2
	ipSource   = 4
	ipDest     = 20

	// IPServiceLen is the length of this head.
	IPServiceLen = 36
	// TCPService is the service ID of port 0 of RDMA_PS_TCP. A service ID is this number plus the
	// port.
	TCPService = 0x0106 << 16
)

// IPService is the head of the private data in a REQ of rdma_cm.
type IPService []byte

// IPServiceFields are the fields of an IPService.
type IPServiceFields struct {
	Version     uint8    // of IP: 4 or 6
	Port        uint16   // source port of the connection
	Source      [16]byte // an IPv4 address is in the last 4 bytes
	Destination [16]byte
}

// Valid reports whether the bytes hold an IPService of the version that this package supports.
func (s IPService) Valid() bool {
	return len(s) >= IPServiceLen && s[ipVersions] == 0 && (s[ipFamily]>>4 == 4 || s[ipFamily]>>4 == 6)
}

// Fields reads all fields.
func (s IPService) Fields() IPServiceFields {
	return IPServiceFields{
		Version: s[ipFamily] >> 4, Port: binary.BigEndian.Uint16(s[ipPort:]),
		Source: [16]byte(s[ipSource:]), Destination: [16]byte(s[ipDest:]),
	}
}

// Encode writes all fields.
func (s IPService) Encode(f *IPServiceFields) {
	_ = s[IPServiceLen-1]
	s[ipVersions], s[ipFamily] = 0, f.Version<<4
	binary.BigEndian.PutUint16(s[ipPort:], f.Port)
	copy(s[ipSource:], f.Source[:])
	copy(s[ipDest:], f.Destination[:])
}
