package filter

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
)

// Offsets into an Ethernet frame.
const (
	offEtherDst  = 0
	offEtherSrc  = 6
	offEtherType = 12
	offNetwork   = 14
	offFragment  = 20 // IPv4 flags and fragment offset
	offProtocol4 = 23
	offSource4   = 26
	offTarget4   = 30
	offSource6   = 22
	offTarget6   = 38
	offSourceARP = 28
	offTargetARP = 38
	offNext6     = 20
	offPayload6  = 54
)

const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeRARP = 0x8035
	typeIPv6 = 0x86DD

	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44
	protoICMPv6   = 58
	protoSCTP     = 132

	fragmentOffset = 0x1FFF
)

// direction selects one of a packet's two addresses or ports.
type direction int

const (
	either direction = iota // src or dst, also the default
	source
	target
	both
)

func absolute(offset uint32, size int) []bpf.Instruction {
	return []bpf.Instruction{bpf.LoadAbsolute{Off: offset, Size: size}}
}

func equal(offset uint32, size int, value uint32) node {
	return test{load: absolute(offset, size), op: bpf.JumpEqual, value: value}
}

func etherType(value uint32) node { return equal(offEtherType, 2, value) }

// byDirection joins the tests of the source and of the destination.
func byDirection(d direction, src, dst node) node {
	switch d {
	case source:
		return src
	case target:
		return dst
	case both:
		return all{src, dst}
	}
	return some{src, dst}
}

func protocol4(number uint32) node { return all{etherType(typeIPv4), equal(offProtocol4, 1, number)} }

// protocol6 looks after one fragment header, as libpcap does, and after no other extension header.
func protocol6(number uint32) node {
	return all{etherType(typeIPv6), some{
		equal(offNext6, 1, number),
		all{equal(offNext6, 1, protoFragment), equal(offPayload6, 1, number)},
	}}
}

func protocol(number uint32) node { return some{protocol4(number), protocol6(number)} }

func firstFragment() node {
	return not{test{load: absolute(offFragment, 2), op: bpf.JumpBitsSet, value: fragmentOffset}}
}

// masked compares 32 bits under a mask.
func masked(offset, value, mask uint32) node {
	load := absolute(offset, 4)
	if mask != 0xFFFFFFFF {
		load = append(load, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
	}
	return test{load: load, op: bpf.JumpEqual, value: value}
}

// address4 matches an IPv4 address under a mask, in the packets of q.proto: IPv4, ARP, RARP, or all
// three.
func address4(q qualifiers, value, mask uint32) node {
	pair := func(frameType, src, dst uint32) node {
		return all{etherType(frameType),
			byDirection(q.direction, masked(src, value, mask), masked(dst, value, mask))}
	}
	switch q.proto {
	case "ip":
		return pair(typeIPv4, offSource4, offTarget4)
	case "arp":
		return pair(typeARP, offSourceARP, offTargetARP)
	case "rarp":
		return pair(typeRARP, offSourceARP, offTargetARP)
	}
	return some{pair(typeIPv4, offSource4, offTarget4), pair(typeARP, offSourceARP, offTargetARP),
		pair(typeRARP, offSourceARP, offTargetARP)}
}

func address6(d direction, prefix netip.Prefix) node {
	bytes := prefix.Addr().As16()
	at := func(offset uint32) node {
		var words all
		for i := 0; i < 4 && 32*i < prefix.Bits(); i++ {
			mask := uint32(0xFFFFFFFF)
			if left := prefix.Bits() - 32*i; left < 32 {
				mask <<= 32 - left
			}
			words = append(words, masked(offset+uint32(4*i), binary.BigEndian.Uint32(bytes[4*i:])&mask, mask))
		}
		return words
	}
	return all{etherType(typeIPv6), byDirection(d, at(offSource6), at(offTarget6))}
}

func etherAddress(offset uint32, mac []byte) node {
	return all{
		equal(offset+2, 4, binary.BigEndian.Uint32(mac[2:])),
		equal(offset, 2, uint32(binary.BigEndian.Uint16(mac))),
	}
}

// ports matches a range of ports of the given transports.
func ports(d direction, transports []uint32, low, high uint32) node {
	between := func(load func() []bpf.Instruction) node {
		if low == high {
			return test{load: load(), op: bpf.JumpEqual, value: low}
		}
		return all{
			test{load: load(), op: bpf.JumpGreaterOrEqual, value: low},
			not{test{load: load(), op: bpf.JumpGreaterThan, value: high}},
		}
	}
	var four, six some
	for _, number := range transports {
		four = append(four, equal(offProtocol4, 1, number))
		six = append(six, equal(offNext6, 1, number))
	}
	port4 := func(offset uint32) node {
		return between(func() []bpf.Instruction {
			return []bpf.Instruction{bpf.LoadMemShift{Off: offNetwork},
				bpf.LoadIndirect{Off: offNetwork + offset, Size: 2}}
		})
	}
	port6 := func(offset uint32) node {
		return between(func() []bpf.Instruction { return absolute(offPayload6+offset, 2) })
	}
	return some{
		all{etherType(typeIPv6), six, byDirection(d, port6(0), port6(2))},
		all{etherType(typeIPv4), four, firstFragment(), byDirection(d, port4(0), port4(2))},
	}
}

// packetDirection compares the kernel's packet type, in which 4 is outgoing.
func packetDirection(outbound bool) node {
	const outgoing = 4
	n := test{load: []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtType}}, op: bpf.JumpEqual,
		value: outgoing}
	if outbound {
		return n
	}
	return not{n}
}
