package infiniband

import (
	"encoding/binary"

	"railbed/internal/wire"
)

const (
	// HeadersIPv4 and HeadersIPv6 are the bytes of the headers that stand before a
	// packet and are in its ICRC: of IP, without options or extensions, and UDP.
	HeadersIPv4 = wire.IPv4MinLen + wire.UDPLen
	HeadersIPv6 = wire.IPv6Len + wire.UDPLen

	// crcOfLRH is the state of the CRC behind 8 bytes of ones, which stand for the
	// local routing header that RoCE has not.
	crcOfLRH = 0xDEBB20E3
)

// What routers and network cards may change is all ones in the ICRC (A17.3.3): the
// type of service, time to live and checksum of IPv4; the traffic class, flow label
// and hop limit of IPv6; the checksum of UDP; and the byte of FECN and BECN.
var (
	maskIPv4 = words([]byte{1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF, 26: 0xFF, 27: 0xFF})
	maskIPv6 = words([]byte{0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 46: 0xFF, 47: 0xFF})
	maskBTH  = words([]byte{BTHLen - 1: 0, bthCongestion: 0xFF})
)

// words are as they stand in memory, the first byte the lowest.
func words(b []byte) (w []uint32) {
	for ; len(b) > 0; b = b[4:] {
		w = append(w, binary.LittleEndian.Uint32(b))
	}
	return w
}

// ICRC computes the invariant CRC of a packet behind its headers of IP and UDP,
// which are HeadersIPv4 or HeadersIPv6 bytes, as they are sent: the identification
// of IPv4 is in it (9.2.8, A17.3.3). It is CRC-32 as of Ethernet. The packet is
// whole, its last four bytes are not looked at. It panics for headers of another
// length, and for a packet without BTH and ICRC.
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

// ICRCValid says that the packet has its ICRC behind these headers.
func (p Packet) ICRCValid(headers []byte) bool { return p.ICRC() == ICRC(headers, p) }

// Seal computes the ICRC and writes it, lowest byte first.
func (p Packet) Seal(headers []byte) {
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], ICRC(headers, p))
}
