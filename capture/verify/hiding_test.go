package verify

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
)

// hidings leave all packets in the recording, and take from it what checks could read in them.
var hidings = []sabotage{
	{name: "reliable datagrams encrypted",
		amount: "all of them, and there are no keys",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.each(func(p *pcapng.Packet, _ int, h *wire.Headers) {
				if h.Protocol == wire.ProtocolUDP && wire.IsPortRD(h.DstPort) {
					encrypt(p, int(h.Payload))
				}
			})
		}},
	{name: "IP packets encrypted", of: isRule,
		amount: "all of them, by ESP",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.each(func(p *pcapng.Packet, at int, h *wire.Headers) {
				scramble(p, p.Data[at:])
				setProtocol(p.Data[h.L3:], h, protocolESP)
			})
		}},
	{name: "in tunnels that are not decoded", of: isRule,
		amount: fmt.Sprintf("all IP packets are in others, of protocol %d", protocolOther),
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.each(func(p *pcapng.Packet, _ int, h *wire.Headers) { carry(p, h, protocolOther) })
		}},
	{name: "in tunnels", of: isRule, harmless: true,
		amount: "all IP packets are in others, with the same addresses",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			c.each(func(p *pcapng.Packet, _ int, h *wire.Headers) {
				carry(p, h, map[bool]byte{true: protocolIPv4, false: protocolIPv6}[h.Has(wire.IsIPv4)])
			})
		}},
	{name: "directions, ids and queues missing",
		amount: "every packet loses them, as in recordings of other programs",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			for i := range c.packets {
				c.packets[i].Has &^= pcapng.HasFlags | pcapng.HasID | pcapng.HasQueue
				c.packets[i].Flags, c.packets[i].ID, c.packets[i].Queue = 0, 0, 0
			}
		}},
	{name: "names of ports missing", total: true,
		amount: "every tap loses its name and its description, as in a pcap file",
		do: func(c *tape, _ *evidence.Options, _ *rand.Rand) {
			for i := range c.interfaces {
				c.interfaces[i].Name, c.interfaces[i].Description = "", ""
			}
		}},
}

// Protocols of IP (IANA).
const (
	protocolIPv4  = 4
	protocolIPv6  = 41
	protocolESP   = 50
	protocolOther = 253 // for experiments
)

// each calls do for each packet of IP, with a copy of its bytes and the offset behind its IP header.
func (c *tape) each(do func(p *pcapng.Packet, at int, h *wire.Headers)) {
	for i := range c.packets {
		p := &c.packets[i]
		if h := wire.Parse(p.Data); h.L4 > 0 && int(h.L4) <= len(p.Data) {
			p.Data = slices.Clone(p.Data)
			do(p, int(h.L4), &h)
		}
	}
}

// isRule reports whether a check is a rule. Other checks judge the outer packets of tunnels. The TTL, which
// rules of the time of a fault read, is another one in a tunnel.
func isRule(check string) bool {
	return strings.HasPrefix(check, "rule ") && !strings.HasSuffix(check, " a fault")
}

// scramble replaces bytes of a packet, by the same bytes at every tap.
func scramble(p *pcapng.Packet, b []byte) {
	random := rand.New(rand.NewPCG(p.ID, 0))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
}

// setProtocol changes the protocol number of a header of IP.
func setProtocol(ip []byte, h *wire.Headers, number byte) {
	if h.Has(wire.IsIPv6) {
		ip[6] = number
		return
	}
	ip[9] = number
	sumHeader(ip[:h.L4-h.L3])
}

// sumHeader sets the checksum of a header of IPv4.
func sumHeader(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^wire.Sum(b, 0))
}

// lengthen adds a number to the length of an IP packet.
func lengthen(ip []byte, h *wire.Headers, by int) {
	at := ip[2:]
	if h.Has(wire.IsIPv6) {
		at = ip[4:]
	}
	binary.BigEndian.PutUint16(at, binary.BigEndian.Uint16(at)+uint16(by))
	if h.Has(wire.IsIPv4) {
		sumHeader(ip[:h.L4-h.L3])
	}
}

// carry puts an IP packet into another with the same header. If the packet has a payload, the payload makes
// room for the header.
func carry(p *pcapng.Packet, h *wire.Headers, number byte) {
	header := slices.Clone(p.Data[h.L3:h.L4])
	ip := p.Data[h.L3:]
	if h.Has(wire.IsIPv4) { // tunnels do not count the hops of packets inside
		ip[8] = 64
		sumHeader(ip[:len(header)])
	}
	if int(h.End)-int(h.Payload) > len(header) {
		lengthen(ip, h, -len(header))
		if h.Protocol == wire.ProtocolUDP {
			udp := p.Data[h.L4+4:]
			binary.BigEndian.PutUint16(udp, binary.BigEndian.Uint16(udp)-uint16(len(header)))
		}
		if len(p.Data) == p.Length {
			p.Data = p.Data[:len(p.Data)-len(header)]
		}
	} else {
		lengthen(header, h, len(header))
		p.Length += len(header)
	}
	setProtocol(header, h, number)
	p.Data = slices.Insert(p.Data, int(h.L3), header...)
}

// encrypt makes a reliable datagram unreadable without keys.
func encrypt(p *pcapng.Packet, at int) {
	h := wire.Parse(p.Data)
	if p.Data[at] < 0x80 { // telemetry before it
		at += wire.INT(p.Data[at:]).Len()
	}
	b := wire.RD(p.Data[at:])
	if !b.HasBase() || b.Sealed() {
		return
	}
	scramble(p, b[wire.RDBaseLen:])
	whole := len(p.Data) == p.Length
	p.Data = slices.Insert(p.Data, at+wire.RDBaseLen, make([]byte, wire.RDSecurityLen)...)
	if whole {
		p.Data = append(p.Data, make([]byte, wire.RDTagLen)...)
	}
	wire.RD(p.Data[at:]).EncodeSecurity(&wire.RDSecurity{})
	udp := p.Data[h.L4+4:]
	binary.BigEndian.PutUint16(udp, binary.BigEndian.Uint16(udp)+wire.RDSealedLen)
	lengthen(p.Data[h.L3:], &h, wire.RDSealedLen)
	p.Length += wire.RDSealedLen
}
