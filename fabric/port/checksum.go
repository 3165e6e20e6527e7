package port

import "encoding/binary"

// Protocol numbers and the offsets of their checksums.
const (
	protocolTCP, checksumTCP = 6, 16
	protocolUDP, checksumUDP = 17, 6
)

// completeChecksum computes the TCP or UDP checksum that a sender with checksum offload left to its
// device, and reports whether it could. Such a packet has the sum of the pseudo header in the
// checksum field (Linux, CHECKSUM_PARTIAL). Any other value there belongs to another packet's
// checksum, such as a tunnel's.
func completeChecksum(frame []byte) bool {
	header := HeaderLen
	if isTag(frame) {
		header += TagLen
	}
	if len(frame) < header {
		return false
	}
	packet := frame[header:]
	var segment []byte
	var protocol byte
	var sum uint64
	switch binary.BigEndian.Uint16(frame[header-2:]) {
	case 0x0800:
		protocol, segment, sum = segmentOf4(packet)
	case 0x86DD:
		protocol, segment, sum = segmentOf6(packet)
	}
	at := checksumTCP
	switch protocol {
	case protocolTCP:
	case protocolUDP:
		at = checksumUDP
	default:
		return false
	}
	if len(segment) < at+2 {
		return false
	}
	pseudo := fold(sum + uint64(protocol) + uint64(len(segment)))
	if binary.BigEndian.Uint16(segment[at:]) != pseudo {
		return false
	}
	checksum := ^fold(add(0, segment))
	if checksum == 0 && protocol == protocolUDP {
		checksum = 0xFFFF // RFC 768: 0 means no checksum
	}
	binary.BigEndian.PutUint16(segment[at:], checksum)
	return true
}

// segmentOf4 returns the transport segment of a whole IPv4 packet, and the sum of its addresses.
// The protocol is 0 for a fragment or a broken packet.
func segmentOf4(packet []byte) (protocol byte, segment []byte, sum uint64) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return 0, nil, 0
	}
	header, total := int(packet[0]&15)*4, int(binary.BigEndian.Uint16(packet[2:]))
	if header < 20 || total < header || total > len(packet) ||
		binary.BigEndian.Uint16(packet[6:])&0x3FFF != 0 {
		return 0, nil, 0
	}
	return packet[9], packet[header:total], add(0, packet[12:20])
}

// segmentOf6 is segmentOf4 for IPv6 packets without extension headers, or with
// hop-by-hop and destination options.
func segmentOf6(packet []byte) (protocol byte, segment []byte, sum uint64) {
	const fixed, hopByHop, destination = 40, 0, 60
	if len(packet) < fixed || packet[0]>>4 != 6 {
		return 0, nil, 0
	}
	total := fixed + int(binary.BigEndian.Uint16(packet[4:]))
	if total > len(packet) {
		return 0, nil, 0
	}
	protocol, segment = packet[6], packet[fixed:total]
	for protocol == hopByHop || protocol == destination {
		if len(segment) < 8 || len(segment) < 8+8*int(segment[1]) {
			return 0, nil, 0
		}
		protocol, segment = segment[0], segment[8+8*int(segment[1]):]
	}
	return protocol, segment, add(0, packet[8:40])
}

// add adds big-endian 16-bit words, the last padded with zero (RFC 1071).
func add(sum uint64, data []byte) uint64 {
	for len(data) >= 4 {
		sum += uint64(binary.BigEndian.Uint32(data))
		data = data[4:]
	}
	if len(data) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(data))
		data = data[2:]
	}
	if len(data) == 1 {
		sum += uint64(data[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	return uint16(sum)
}
