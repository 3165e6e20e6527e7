package port

import (
	"encoding/binary"

	"railbed/internal/wire"
)

// Offsets of checksums in the headers of TCP and UDP.
const checksumTCP, checksumUDP = wire.TCPChecksumAt, 6

// completeChecksum computes the TCP or UDP checksum that a sender with checksum offload left to its
// device, and reports whether it could. Such a packet has the sum of the pseudo header in the
// checksum field (Linux, CHECKSUM_PARTIAL). Any other value there belongs to another packet's
// checksum, such as a tunnel's.
func completeChecksum(frame []byte) bool {
	h := wire.Parse(frame)
	if h.L4 == 0 || h.Verdict == wire.Truncated || h.Has(wire.Fragment) {
		return false
	}
	at, segment := checksumTCP, frame[h.L4:h.End]
	switch h.Protocol {
	case wire.ProtocolTCP:
	case wire.ProtocolUDP:
		at = checksumUDP
	default:
		return false
	}
	pseudo := wire.PseudoIPv6(h.Src, h.Dst, h.Protocol, len(segment))
	if h.Has(wire.IsIPv4) {
		pseudo = wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]), h.Protocol, len(segment))
	}
	if len(segment) < at+2 || binary.BigEndian.Uint16(segment[at:]) != pseudo {
		return false
	}
	checksum := wire.Checksum(segment)
	if checksum == 0 && h.Protocol == wire.ProtocolUDP {
		checksum = 0xFFFF // RFC 768: 0 means no checksum
	}
	binary.BigEndian.PutUint16(segment[at:], checksum)
	return true
}
