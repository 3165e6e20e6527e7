package display

import (
	"encoding/binary"
	"slices"

	"railbed/internal/wire"
)

// maxNesting bounds the headers of Ethernet and IP in a packet.
const maxNesting = 16

// nested counts a header of Ethernet or IP, and reports whether it is read.
func (p *Packet) nested() bool {
	if p.nesting++; p.nesting > maxNesting {
		p.opaque("more than %d headers of Ethernet and IP in each other", maxNesting)
		return false
	}
	return true
}

// Numbers of protocols that carry packets: types of Ethernet (IEEE 802), protocols of IP and ports of UDP
// (IANA).
const (
	etherTypeBridged   = 0x6558 // an Ethernet frame
	etherTypeMPLS      = 0x8847
	etherTypeMulticast = 0x8848 // MPLS, too
	etherTypePPPoE     = 0x8864
	etherTypeMACsec    = 0x88E5

	protocolIPv4 = 4
	protocolIPv6 = 41
	protocolGRE  = 47
	protocolESP  = 50
	protocolAH   = 51
	protocolPIM  = 103
	protocolMPLS = 137

	portVXLAN     = 4789 // RFC 7348
	portGeneve    = 6081 // RFC 8926
	portIPsec     = 4500 // ESP in UDP, RFC 3948
	portWireGuard = 51820
)

// endsOfEthernet are types whose frames carry no other packets. They are RARP, Wake-on-LAN, AppleTalk, IPX,
// slow protocols, discovery of PPPoE, HomePlug, 802.1X, PROFINET, AoE and EtherCAT. Then come LLDP, MRP, PTP,
// PRP, CFM, FCoE, FIP, MMRP, MVRP, IEEE 1905, and loopback tests.
var endsOfEthernet = []int{0x8035, 0x0842, 0x809B, 0x80F3, 0x8137, 0x8809, 0x8863, 0x887B, 0x88E1, 0x888E,
	0x8892, 0x88A2, 0x88A4, 0x88CC, 0x88E3, 0x88F7, 0x88FB, 0x8902, 0x8906, 0x8914, 0x88F5, 0x88F6, 0x893A,
	0x9000}

// tunnelOfEthernet finds the headers behind a type of Ethernet that is not IP's, ARP's or MAC control's.
func (p *Packet) tunnelOfEthernet(kind, at, end int) {
	switch {
	case kind <= 1500: // a length
		p.llc(at, min(end, at+kind))
	case kind == etherTypeBridged:
		p.ethernet(at, end)
	case kind == etherTypeMPLS, kind == etherTypeMulticast:
		p.mpls(at, end)
	case kind == etherTypePPPoE:
		p.pppoe(at, end)
	case kind == etherTypeMACsec:
		p.sealed("MACsec", kind)
	case !slices.Contains(endsOfEthernet, kind):
		p.opaque("Ethernet type 0x%04x", kind)
	}
}

// endsOfIP are protocols whose packets carry no other packets: IGMP, DCCP, RSVP, no header (59), EIGRP, OSPF,
// VRRP, PGM, HIP and SCTP.
var endsOfIP = []uint8{2, 33, 46, 59, 88, 89, 112, 113, 132, 139}

// tunnelOfIP finds the headers behind an IP protocol that is not UDP, TCP or ICMP.
func (p *Packet) tunnelOfIP(number uint8, at, end int, icmp Header) {
	switch {
	case number == protocolIPv4:
		p.ipv4(at, end)
	case number == protocolIPv6:
		p.ipv6(at, end)
	case number == protocolGRE:
		p.gre(at, end)
	case number == protocolESP:
		p.sealed("ESP", 0)
	case number == protocolAH: // RFC 4302, 2: the next protocol, and the length in words less 2
		if p.has(anything, at, 12, end) {
			p.transport(p.Raw.Data[at], at+4*(int(p.Raw.Data[at+1])+2), end, icmp)
		}
	case number == protocolMPLS:
		p.mpls(at, end)
	case number == protocolPIM:
		const register = 1 // the type of PIM's messages that carry a packet (RFC 7761, 4.9)
		if p.has(anything, at, 1, end) && p.Raw.Data[at]&0x0F == register {
			p.opaque("PIM", 0)
		}
	case !slices.Contains(endsOfIP, number):
		p.opaque("IP protocol %d", int(number))
	}
}

// tunnelsOfUDP are the ports of protocols that carry packets, besides VXLAN and Geneve. They are L2TP, GTP-U,
// Teredo, LISP and its control messages, GRE, VXLAN-GPE, MPLS (RFC 7510), and Linux's former port of VXLAN.
var tunnelsOfUDP = []int{1701, 2152, 3544, 4341, 4342, 4754, 4790, 6635, 8472}

// tunnelOfUDP finds the headers in a datagram to a port that is not of rd, RoCEv2 or aggregation. As in
// Wireshark, either port selects the protocol, and the smaller one first.
func (p *Packet) tunnelOfUDP(at, end, source, destination int) {
	for _, port := range []int{min(source, destination), max(source, destination)} {
		switch {
		case port == portVXLAN:
			if p.has(anything, at, 8, end) {
				p.ethernet(at+8, end)
			}
		case port == portGeneve:
			p.geneve(at, end)
		case port == portIPsec:
			p.sealed("ESP in UDP", 0)
		case port == portWireGuard:
			p.sealed("WireGuard", 0)
		case slices.Contains(tunnelsOfUDP, port):
			p.opaque("UDP port %d", port)
		default:
			continue
		}
		return
	}
}

// geneve finds the headers behind a header of Geneve (RFC 8926, 3.4).
func (p *Packet) geneve(at, end int) {
	if !p.has(anything, at, 8, end) {
		return
	}
	options := 4 * int(p.Raw.Data[at]&0x3F)
	p.etherType(p.u16(at+2), at+8+options, end)
}

// gre finds the headers behind a header of GRE (RFC 2784, RFC 2890).
func (p *Packet) gre(at, end int) {
	if !p.has(anything, at, 4, end) {
		return
	}
	const (
		checksum = 0x8000
		routing  = 0x4000 // RFC 1701
		key      = 0x2000
		sequence = 0x1000
		version  = 0x0007
	)
	flags, kind := p.u16(at), p.u16(at+2)
	if flags&(routing|version) != 0 {
		p.opaque("GRE with routing or of another version", 0)
		return
	}
	at += 4
	for _, word := range []int{checksum, key, sequence} {
		if flags&word != 0 {
			at += 4
		}
	}
	switch kind {
	case wire.EtherTypeIPv4, wire.EtherTypeIPv6, etherTypeBridged, etherTypeMPLS, etherTypeMulticast:
		p.etherType(kind, at, end)
	case 0: // a keepalive
	default:
		p.opaque("GRE protocol 0x%04x", kind)
	}
}

// mpls finds the headers behind a stack of labels (RFC 3032). Nothing names the protocol behind them: as in
// Wireshark, the version of IP does.
func (p *Packet) mpls(at, end int) {
	for bottom := false; !bottom; at += 4 {
		if !p.has(anything, at, 4, end) {
			return
		}
		bottom = p.Raw.Data[at+2]&1 != 0
	}
	p.version(at, end, "MPLS without IP")
}

// pppoe finds the headers in a session of PPPoE (RFC 2516, 4), behind the protocol number of PPP.
func (p *Packet) pppoe(at, end int) {
	if !p.has(anything, at, 6+2, end) {
		return
	}
	end = min(end, at+6+p.u16(at+4))
	at += 6
	number, length := p.u16(at), 2
	if p.Raw.Data[at]&1 != 0 { // a compressed number (RFC 1661, 6.5)
		number, length = int(p.Raw.Data[at]), 1
	}
	switch at += length; {
	case number == 0x0021:
		p.ipv4(at, end)
	case number == 0x0057:
		p.ipv6(at, end)
	case number == 0x0281, number == 0x0283:
		p.mpls(at, end)
	case number < 0x8000: // others are PPP's own
		p.opaque("PPP protocol 0x%04x", number)
	}
}

// endsOfLLC are service access points whose frames carry no packets: null, spanning tree, IPX, NetBIOS, OSI
// and raw IPX.
var endsOfLLC = []byte{0x00, 0x42, 0xE0, 0xF0, 0xFE, 0xFF}

// llc finds the headers behind a header of LLC, and of SNAP in it (IEEE 802, 10).
func (p *Packet) llc(at, end int) {
	const snap = 0xAA
	if !p.has(anything, at, 3, end) {
		return
	}
	point := p.Raw.Data[at]
	if point != snap || p.Raw.Data[at+1] != snap {
		if !slices.Contains(endsOfLLC, point) {
			p.opaque("LLC with the service access point 0x%02x", int(point))
		}
		return
	}
	if !p.has(anything, at, 8, end) {
		return
	}
	organization, kind := binary.BigEndian.Uint32(p.Raw.Data[at+2:])&0xFFFFFF, p.u16(at+6)
	switch {
	case organization == 0:
		p.etherType(kind, at+8, end)
	case organization == 0x00000C && kind != 0x0102: // Cisco's own, such as CDP
	default:
		p.opaque("SNAP of organization 0x%06x", int(organization))
	}
}
