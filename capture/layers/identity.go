// Package layers decodes the packets that cross a fabric. It knows which bytes a switch may change,
// and so when two captured packets are the same packet.
package layers

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"railbed/internal/wire"
)

// maxTags is the number of VLAN tags that Identity passes.
const maxTags = 2

// Identity is a hash of the bytes of an Ethernet frame that switches and routers do not change. So
// the hash is the same at every tap that the frame crosses.
//
// The hash leaves out the Ethernet addresses, the VLAN tags and the fields that a router may
// rewrite. Those are the type of service (DSCP and ECN), TTL and header checksum of IPv4, and the
// traffic class and hop limit of IPv6. Of a datagram with a block of telemetry, which hops write
// into, it leaves out the block and the UDP checksum. It includes all other captured bytes, up to
// the end of the IP packet, and the length on the wire. Frames must be captured with the same snap
// length at all taps.
//
// Two frames with equal included bytes have the same identity: for example a repeated ARP request,
// or an IPv6 segment sent twice within a tick of its TCP timestamp. Ordinals distinguishes such
// frames. A device that rewrites more, such as a NAT or a trimming switch, gives a packet a new
// identity.
func Identity(frame []byte, length int) uint64 {
	if len(frame) < wire.EthernetLen {
		return mix(xxhash.Sum64(frame), uint64(length))
	}
	at := wire.EthernetLen
	etherType := binary.BigEndian.Uint16(frame[at-2:])
	for range maxTags {
		if !wire.IsTag(etherType) || len(frame) < at+wire.TagLen {
			break
		}
		etherType = binary.BigEndian.Uint16(frame[at+2:])
		at += wire.TagLen
	}
	packet, length := frame[at:], length-at
	seed := uint64(etherType)
	switch {
	case etherType == wire.EtherTypeIPv4 && len(packet) >= wire.IPv4MinLen:
		return ipv4Identity(packet, seed)
	case etherType == wire.EtherTypeIPv6 && len(packet) >= wire.IPv6Len:
		return ipv6Identity(packet, seed)
	}
	return mix(xxhash.Sum64(packet), seed<<32|uint64(uint32(length)))
}

func ipv4Identity(packet []byte, seed uint64) uint64 {
	total := int(binary.BigEndian.Uint16(packet[2:]))
	if total >= wire.IPv4MinLen && total < len(packet) {
		packet = packet[:total] // the rest is padding of the link
	}
	var header [wire.IPv4MinLen]byte
	copy(header[:], packet)
	header[1] = 0                 // DSCP and ECN
	header[8] = 0                 // TTL
	header[10], header[11] = 0, 0 // checksum
	payload := packet[wire.IPv4MinLen:]
	whole := packet[6]&0x3F|packet[7] == 0 // and no fragment
	if from, to := telemetry(payload); packet[0] == 0x45 && packet[9] == wire.ProtocolUDP && whole &&
		from < to {
		return mix(withoutTelemetry(payload, from, to), xxhash.Sum64(header[:])+seed)
	}
	return mix(xxhash.Sum64(payload), xxhash.Sum64(header[:])+seed)
}

// telemetry returns the bounds of the telemetry block in a UDP datagram, into which hops write, or
// 0 and 0 if there is none.
func telemetry(datagram []byte) (from, to int) {
	if len(datagram) < wire.UDPLen+wire.INTLen {
		return 0, 0
	}
	port := wire.UDP(datagram).DstPort()
	block := wire.INT(datagram[wire.UDPLen:])
	if port != wire.PortINT && !wire.IsPortRD(port) || !block.Starts() {
		return 0, 0
	}
	return wire.UDPLen, min(wire.UDPLen+block.Len(), len(datagram))
}

func withoutTelemetry(datagram []byte, from, to int) uint64 {
	const checksum = 6 // its offset
	return mix(xxhash.Sum64(datagram[:checksum]), xxhash.Sum64(datagram[to:])+uint64(to-from))
}

func ipv6Identity(packet []byte, seed uint64) uint64 {
	total := wire.IPv6Len + int(binary.BigEndian.Uint16(packet[4:]))
	if total < len(packet) {
		packet = packet[:total]
	}
	var header [wire.IPv6Len]byte
	copy(header[:], packet)
	header[0] &= 0xF0 // traffic class, upper half
	header[1] &= 0x0F // traffic class, lower half; the flow label stays
	header[7] = 0     // hop limit
	payload := packet[wire.IPv6Len:]
	if from, to := telemetry(payload); packet[6] == wire.ProtocolUDP && from < to {
		return mix(withoutTelemetry(payload, from, to), xxhash.Sum64(header[:])+seed)
	}
	return mix(xxhash.Sum64(payload), xxhash.Sum64(header[:])+seed)
}

// Mix combines two numbers into one. For a given first number, different second numbers give
// different results.
func Mix(a, b uint64) uint64 { return mix(a, b) }

// mix combines two hashes. Exchanging the hashes changes the result, and equal hashes do not cancel
// out. It is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(a, b uint64) uint64 {
	x := a + b*0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
