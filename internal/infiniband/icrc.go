package infiniband

import (
	"encoding/binary"

	"railbed/internal/wire"
)

const (
	// HeadersIPv4 and HeadersIPv6 are the lengths in bytes of the headers before a packet that its
	// ICRC covers: IP, without options or extensions, and UDP.
	HeadersIPv4 = wire.IPv4MinLen + wire.UDPLen
	HeadersIPv6 = wire.IPv6Len + wire.UDPLen

	// crcOfLRH is the state of the CRC after 8 bytes of ones, which replace the local routing
	// header that RoCE does not have.
	crcOfLRH = 0xDEBB20E3
)

// Fields that routers and network cards may change count as all ones in the ICRC (A17.3.3). In IPv4
// they are the type of service, time to live and checksum; in IPv6 the traffic class, flow label
// and hop limit. In UDP it is the checksum, and in the BTH the byte of FECN and BECN.
var (
	maskIPv4 = words([]byte{1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF, 26: 0xFF, 27: 0xFF})
	maskIPv6 = words([]byte{0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 46: 0xFF, 47: 0xFF})
	maskBTH  = words([]byte{BTHLen - 1: 0, bthCongestion: 0xFF})
)

// words are in memory order, the first byte the least significant.
func words(b []byte) (w []uint32) {
	for ; len(b) > 0; b = b[4:] {
		w = append(w, binary.LittleEndian.Uint32(b))
	}
	return w
}

// ICRC computes the invariant CRC of a packet and its headers of IP and UDP (9.2.8, A17.3.3). The
// headers are HeadersIPv4 or HeadersIPv6 bytes, as sent: the CRC covers the identification of IPv4.
// The CRC is the CRC-32 of Ethernet. The packet is whole; its last four bytes are ignored. ICRC
// panics for headers of another length, and for a packet without BTH and ICRC.
func ICRC(headers []byte, p Packet) uint32 {
	crc := uint32(crcOfLRH)
	switch len(headers) {
	case HeadersIPv4:
		crc = masked(crc, headers, maskIPv4)
	case HeadersIPv6:
		crc = masked(crc, headers, maskIPv6)
	default:
		panic("infiniband: headers of neither IPv4 nor IPv6 with UDP")
	}
	crc = masked(crc, p[:BTHLen], maskBTH)
	return ^fastest()(crc, p[BTHLen:len(p)-ICRCLen])
}

// ICRCValid reports whether the packet's ICRC matches the packet with these headers.
func (p Packet) ICRCValid(headers []byte) bool { return p.ICRC() == ICRC(headers, p) }

// Seal computes the ICRC and writes it, least significant byte first.
func (p Packet) Seal(headers []byte) {
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], ICRC(headers, p))
}
