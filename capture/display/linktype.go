package display

import (
	"encoding/binary"

	"railbed/capture/pcapng"
)

// Link types of captures (https://www.tcpdump.org/linktypes.html), besides Ethernet.
const (
	linkNull       = 0 // BSD loopback: the address family in the byte order of the host
	linkRaw        = 101
	linkRawBSD     = 12 // raw IP in files of some systems, and of OpenBSD
	linkRawOpenBSD = 14
	linkLoop       = 108 // OpenBSD loopback: the address family in network byte order
	linkCooked     = 113 // of tcpdump -i any, LINKTYPE_LINUX_SLL
	linkERF        = 197 // Endace's extensible record format
	linkIPv4       = 228
	linkIPv6       = 229
	linkInfiniband = 247
	linkCooked2    = 276 // of later versions of tcpdump -i any, LINKTYPE_LINUX_SLL2
)

// link finds the headers of a record by the link type of its interface.
func (p *Packet) link(end int) {
	switch kind := p.Interface.LinkType; kind {
	case pcapng.LinkEthernet:
		p.ethernet(0, end)
	case linkRaw, linkRawBSD, linkRawOpenBSD, linkIPv4, linkIPv6:
		p.version(0, end, notIP)
	case linkNull, linkLoop:
		if p.has(anything, 0, 4, end) {
			p.family(kind, 4, end)
		}
	case linkCooked:
		p.cooked(14, 16, end)
	case linkCooked2:
		p.cooked(0, 20, end)
	case linkERF:
		p.erf(end)
	case linkInfiniband:
		p.local(0, end)
	default:
		p.opaque("link type %d", int(kind))
	}
}

const notIP = "neither IPv4 nor IPv6"

// version finds an IP packet by its version. neither names a packet that is not IP.
func (p *Packet) version(at, end int, neither string) {
	if !p.has(anything, at, 1, end) {
		return
	}
	switch p.Raw.Data[at] >> 4 {
	case 4:
		p.ipv4(at, end)
	case 6:
		p.ipv6(at, end)
	default:
		p.opaque(neither, 0)
	}
}

// family finds the headers behind an address family. IPv4 is 2 everywhere, IPv6 differs by the system.
func (p *Packet) family(link uint16, at, end int) {
	family := binary.BigEndian.Uint32(p.Raw.Data)
	if little := binary.LittleEndian.Uint32(p.Raw.Data); link == linkNull && little < family {
		family = little
	}
	switch family {
	case 2:
		p.ipv4(at, end)
	case 10, 24, 28, 30: // Linux; NetBSD and OpenBSD; FreeBSD; macOS
		p.ipv6(at, end)
	default:
		p.opaque("address family %d", int(family))
	}
}

// cooked finds the headers behind Linux's header of packets of any interface. kind is the place of the type
// of Ethernet or, below 1536, of Linux's own number.
func (p *Packet) cooked(kind, at, end int) {
	if !p.has(anything, 0, at, end) {
		return
	}
	const llc = 4 // IEEE 802.2, after ETH_P_802_2 in include/uapi/linux/if_ether.h
	switch number := p.u16(kind); {
	case number == llc:
		p.llc(at, end)
	case number >= 1536:
		p.etherType(number, at, end)
	default:
		p.opaque("packets of Linux's type %d", number)
	}
}

// erf finds the headers behind a record header of Endace's DAG cards.
func (p *Packet) erf(end int) {
	const (
		header, extension = 16, 8
		typeAt, lengthAt  = 8, 14
		more              = 0x80 // another extension header follows
		// Types of records. Ethernet has two bytes of padding in front of each frame.
		ethernet, colorEthernet, dsmEthernet = 2, 11, 16
		infiniband, ipv4, ipv6               = 21, 22, 23
	)
	if !p.has(anything, 0, header, end) {
		return
	}
	kind, at := p.Raw.Data[typeAt], header
	length := p.u16(lengthAt)
	for next := kind; next&more != 0; at += extension {
		if !p.has(anything, at, extension, end) {
			return
		}
		next = p.Raw.Data[at]
	}
	switch kind &^ more {
	case ethernet, colorEthernet, dsmEthernet:
		at += 2
		p.ethernet(at, max(at, min(p.Raw.Length, at+length)))
	case infiniband:
		p.local(at, max(at, min(p.Raw.Length, at+length)))
	case ipv4, ipv6:
		p.version(at, max(at, min(p.Raw.Length, at+length)), notIP)
	default:
		p.opaque("ERF records of type %d", int(kind&^more))
	}
}

// local finds the headers of an InfiniBand packet (IBTA volume 1, 5.2): local routes, global routes or none,
// and transport.
func (p *Packet) local(at, end int) {
	const (
		localLen, globalLen = 8, 40
		nextAt, lengthAt    = 1, 4
		transport, global   = 2, 3 // link next header
		globalNextAt        = 6
		transportNext       = 0x1B
	)
	if !p.has(anything, at, localLen, end) {
		return
	}
	next := p.Raw.Data[at+nextAt] & 3
	if words := p.u16(at+lengthAt) & 0x7FF; words > 0 { // from the first byte up to the variant CRC
		end = min(end, at+4*words)
	}
	at += localLen
	if next == global && p.has(anything, at, globalLen, end) {
		if p.Raw.Data[at+globalNextAt] != transportNext {
			p.opaque("InfiniBand packets of next header 0x%02x", int(p.Raw.Data[at+globalNextAt]))
			return
		}
		p.infiniband(at+globalLen, end)
		return
	}
	if next == transport {
		p.infiniband(at, end)
		return
	}
	p.opaque("raw InfiniBand packets", 0)
}
