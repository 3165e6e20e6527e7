package wire

import (
	"encoding/binary"
	"math/bits"
)

// The Internet checksum: RFC 1071, and RFC 1624 for the incremental update.

// Sum adds bytes to a partial one's complement sum and returns the new partial sum. It adds
// big-endian 16-bit words, with a zero byte after an odd last byte. The sums of several pieces can
// be chained if each piece but the last has an even length.
func Sum(b []byte, initial uint16) uint16 {
	sum, carry := uint64(initial), uint64(0)
	// 64-bit words add up to the same sum as 16-bit words: RFC 1071, 2(C).
	for len(b) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[0:8]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[8:16]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:24]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:32]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var last uint64
	if len(b) >= 4 {
		last = uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		last += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		last += uint64(b[0]) << 8
	}
	sum, carry = bits.Add64(sum, last, carry)
	sum, carry = bits.Add64(sum, 0, carry)
	return fold(sum + carry)
}

// fold brings a sum to 16 bits with end-around carries.
func fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xFFFF_FFFF // at most 33 bits
	sum = sum>>32 + sum&0xFFFF_FFFF // at most 32 bits
	sum = sum>>16 + sum&0xFFFF      // at most 17 bits
	sum = sum>>16 + sum&0xFFFF
	return uint16(sum)
}

// Checksum returns the Internet checksum of bytes whose checksum field is zero. If the field holds
// the correct checksum, the result is zero.
func Checksum(b []byte) uint16 { return ^Sum(b, 0) }

// UpdateChecksum returns the checksum of data in which one aligned 16-bit word changed from old to
// new: RFC 1624, equation 3. It is wrong in one case: for data of only zeros it gives 0, while the
// sum over them needs 0xFFFF. This case does not occur in IP headers or UDP and TCP checksums.
func UpdateChecksum(checksum, old, new uint16) uint16 {
	return ^fold(uint64(^checksum) + uint64(^old) + uint64(new))
}

// PseudoIPv4 returns the partial sum of the pseudo-header that UDP and TCP over IPv4 add to their
// checksum: RFC 768 and RFC 9293, 3.1. The length covers the UDP or TCP header and its payload, in
// bytes.
func PseudoIPv4(src, dst [4]byte, protocol uint8, length int) uint16 {
	sum := uint64(binary.BigEndian.Uint32(src[:])) + uint64(binary.BigEndian.Uint32(dst[:]))
	return fold(sum + uint64(protocol) + uint64(uint32(length)))
}

// PseudoIPv6 returns the partial sum of the pseudo-header that UDP, TCP and ICMPv6 over IPv6 add to
// their checksum: RFC 8200, 8.1. The protocol is the upper layer's, not an extension header's. The
// length covers the upper-layer header and its payload, in bytes.
func PseudoIPv6(src, dst [16]byte, protocol uint8, length int) uint16 {
	sum := Sum(src[:], 0)
	sum = Sum(dst[:], sum)
	return fold(uint64(sum) + uint64(protocol) + uint64(uint32(length)))
}
