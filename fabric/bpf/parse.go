package bpf

import (
	"github.com/cilium/ebpf/asm"

	"railbed/capture/display"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// maxTags is the number of VLAN tags that a program reads. A packet with more has no other headers for it.
const maxTags = 4

// levels is the number of IP packets in each other that a program reads: the packet, and the packet that its
// ICMP message quotes.
const levels = 2

// parser generates the code that finds the headers of a packet, as Packet.Set of package display does. It
// finds only the headers that the filter reads.
//
// While the code runs, R7 has the offset of the next header, and R9 its protocol number. R8 has the end of
// the packet that is being read.
type parser struct {
	*assembler
	needs map[display.Header]bool
	// slots are the places of the headers found. A slot has the offset of the header and the end of its
	// payload, of 32 bits each. The end is 0 if the packet has no such header.
	slots map[display.Header][]int16
	done  string // label after the parser
	// aside has a number over a call.
	aside int16
}

// Registers of the parser.
const (
	offset = asm.R7
	end    = asm.R8
	next   = asm.R9
)

// newParser reserves the memory of a parser.
func newParser(a *assembler, needs map[display.Header]bool) *parser {
	p := &parser{assembler: a, needs: needs, slots: map[display.Header][]int16{}, aside: a.reserve()}
	for h := range needs {
		many := 1
		switch {
		case h == display.VLANHeader:
			many = maxTags
		case h >= display.IPv4Header:
			many = levels
		}
		for range many {
			p.slots[h] = append(p.slots[h], a.reserve())
		}
	}
	return p
}

// beyond reports whether the filter reads a header from h on.
func (p *parser) beyond(h display.Header) bool {
	for needed := range p.needs {
		if needed >= h {
			return true
		}
	}
	return false
}

// found notes a header at the current offset.
func (p *parser) found(h display.Header, number int) {
	if p.needs[h] {
		p.add(
			asm.StoreMem(asm.RFP, p.slots[h][number], offset, asm.Word),
			asm.StoreMem(asm.RFP, p.slots[h][number]+4, end, asm.Word),
		)
	}
}

// parse generates the parser. Afterwards next has the type of the Ethernet frame.
func (p *parser) parse() {
	p.done = p.label("parsed")
	p.add(asm.Mov.Imm(asm.R1, 0))
	for _, slots := range p.slots {
		for _, slot := range slots {
			p.add(asm.StoreMem(asm.RFP, slot, asm.R1, asm.DWord))
		}
	}
	p.add(
		asm.Mov.Imm(offset, 0),
		asm.LoadMem(end, packet, skbLen, asm.Word),
		asm.Mov.Imm(next, 0),
	)
	p.found(display.FrameHeader, 0)
	p.atMost(offset, wire.EthernetLen, end, p.done)
	p.found(display.EthernetHeader, 0)
	p.load(offset, 12, 2, p.done)
	p.add(asm.Mov.Reg(next, asm.R0), asm.Mov.Imm(offset, wire.EthernetLen))
	p.tags()
	ip := [2]string{p.label("ipv4-"), p.label("ipv6-")}
	arp, control := p.label("arp"), p.label("control")
	p.add(asm.JEq.Imm(next, wire.EtherTypeARP, arp), asm.JEq.Imm(next, wire.EtherTypeMACControl, control))
	if p.beyond(display.IPv4Header) {
		p.add(asm.JEq.Imm(next, wire.EtherTypeIPv4, ip[0]), asm.JEq.Imm(next, wire.EtherTypeIPv6, ip[1]))
	}
	p.jump(p.done)
	p.place(arp)
	p.atMost(offset, wire.ARPLen, end, p.done)
	p.found(display.ARPHeader, 0)
	p.jump(p.done)
	p.place(control)
	p.found(display.ControlHeader, 0)
	p.jump(p.done)
	for level := range levels {
		ip = p.datagram(level, ip)
	}
	p.place(p.done)
}

// tags passes over VLAN tags.
func (p *parser) tags() {
	after := p.label("tagged")
	for number := range maxTags {
		tag := p.label("tag")
		p.add(asm.JEq.Imm(next, wire.EtherTypeVLAN, tag), asm.JNE.Imm(next, wire.EtherTypeQinQ, after))
		p.place(tag)
		p.atMost(offset, wire.TagLen, end, p.done)
		p.found(display.VLANHeader, number)
		p.load(offset, 2, 2, p.done)
		p.add(asm.Mov.Reg(next, asm.R0), asm.Add.Imm(offset, wire.TagLen))
	}
	p.place(after)
}

// sixth marks a protocol number as one of IPv6. ICMP of one version means nothing in the other.
const sixth = 1 << 8

// datagram generates the parser of an IP packet, which begins at one of two labels. It returns the labels of
// a packet that this one quotes.
func (p *parser) datagram(level int, ip [2]string) (quoted [2]string) {
	transport := p.label("transport")
	p.place(ip[0])
	p.ipv4(level)
	p.jump(transport)
	p.place(ip[1])
	p.ipv6(level, transport)
	p.place(transport)
	quoted = [2]string{p.label("ipv4-"), p.label("ipv6-")}
	udp, tcp := p.label("udp"), p.label("tcp")
	icmp := [2]string{p.label("icmp"), p.label("icmpv6-")}
	for _, family := range []int32{0, sixth} {
		p.add(
			asm.JEq.Imm(next, family|wire.ProtocolUDP, udp),
			asm.JEq.Imm(next, family|wire.ProtocolTCP, tcp),
		)
	}
	p.add(
		asm.JEq.Imm(next, wire.ProtocolICMPv4, icmp[0]),
		asm.JEq.Imm(next, sixth|wire.ProtocolICMPv6, icmp[1]),
	)
	p.jump(p.done)
	p.place(tcp)
	p.atMost(offset, wire.TCPMinLen, end, p.done)
	p.found(display.TCPHeader, level)
	p.jump(p.done)
	for i, quotes := range [2][]uint8{display.QuotesIPv4, display.QuotesIPv6} {
		p.place(icmp[i])
		p.atMost(offset, icmpLen, end, p.done)
		p.found([2]display.Header{display.ICMPHeader, display.ICMPv6Header}[i], level)
		if level+1 < levels {
			inner := p.label("quote")
			p.load(offset, 0, 1, p.done)
			for _, kind := range quotes {
				p.add(asm.JEq.Imm(asm.R0, int32(kind), inner))
			}
			p.jump(p.done)
			p.place(inner)
			p.add(asm.Add.Imm(offset, icmpLen))
			p.jump(quoted[i])
		}
		p.jump(p.done)
	}
	p.place(udp)
	p.udp(level)
	p.jump(p.done)
	return quoted
}

// icmpLen is the length of the header of ICMP (RFC 792, RFC 4443).
const icmpLen = 8

// within moves the end to the offset plus the length in R0, unless it is before.
func (p *parser) within() {
	kept := p.label("kept")
	p.add(asm.Add.Reg(asm.R0, offset), asm.JGE.Reg(asm.R0, end, kept), asm.Mov.Reg(end, asm.R0))
	p.place(kept)
}

func (p *parser) ipv4(level int) {
	p.atMost(offset, wire.IPv4MinLen, end, p.done)
	p.load(offset, 0, 1, p.done)
	whole := p.label("whole")
	p.add(
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 4),
		asm.JNE.Imm(asm.R1, 4, p.done),
		asm.Mov.Reg(next, asm.R0),
		asm.And.Imm(next, 0xF),
		asm.LSh.Imm(next, 2), // the length of the header
	)
	p.load(offset, 2, 2, p.done)
	p.add(asm.JLT.Reg(asm.R0, next, whole))
	p.within()
	p.place(whole)
	p.found(display.IPv4Header, level)
	p.load(offset, 6, 2, p.done)
	p.add(
		asm.And.Imm(asm.R0, 0x1FFF),
		asm.JNE.Imm(asm.R0, 0, p.done), // not the first fragment
		asm.JLT.Imm(next, wire.IPv4MinLen, p.done),
	)
	p.load(offset, 9, 1, p.done)
	p.add(asm.Add.Reg(offset, next), asm.Mov.Reg(next, asm.R0))
}

// maxExtensions is the number of extension headers of IPv6 that a program passes over.
const maxExtensions = 4

func (p *parser) ipv6(level int, transport string) {
	p.atMost(offset, wire.IPv6Len, end, p.done)
	p.load(offset, 0, 1, p.done)
	p.add(asm.RSh.Imm(asm.R0, 4), asm.JNE.Imm(asm.R0, 6, p.done))
	whole := p.label("whole")
	p.load(offset, 4, 2, p.done)
	p.add(asm.JEq.Imm(asm.R0, 0, whole), asm.Add.Imm(asm.R0, wire.IPv6Len))
	p.within()
	p.place(whole)
	p.found(display.IPv6Header, level)
	p.load(offset, 6, 1, p.done)
	p.add(asm.Mov.Reg(next, asm.R0), asm.Add.Imm(offset, wire.IPv6Len))
	named := p.label("named")
	for range maxExtensions {
		options, fragment := p.label("options"), p.label("fragment")
		for _, number := range display.ExtensionHeaders {
			p.add(asm.JEq.Imm(next, int32(number), options))
		}
		p.add(asm.JEq.Imm(next, display.FragmentExtension, fragment))
		p.jump(named)
		p.place(fragment)
		p.atMost(offset, extensionLen, end, p.done)
		p.load(offset, 2, 2, p.done)
		p.add(asm.RSh.Imm(asm.R0, 3), asm.JNE.Imm(asm.R0, 0, p.done), asm.Mov.Imm(next, 0))
		after := p.label("extension")
		p.jump(after)
		p.place(options)
		p.atMost(offset, extensionLen, end, p.done)
		p.load(offset, 1, 1, p.done)
		p.add(asm.Mov.Reg(next, asm.R0), asm.LSh.Imm(next, 3))
		p.place(after)
		p.load(offset, 0, 1, p.done)
		p.add(asm.Add.Imm(next, extensionLen), asm.Add.Reg(offset, next), asm.Mov.Reg(next, asm.R0))
	}
	p.place(named)
	p.add(asm.Or.Imm(next, sixth))
	p.jump(transport)
}

// extensionLen is the length of the shortest extension header (RFC 8200, 4).
const extensionLen = 8

// udp generates the parser of a UDP header and of the headers in the datagram.
func (p *parser) udp(level int) {
	p.atMost(offset, wire.UDPLen, end, p.done)
	p.load(offset, 4, 2, p.done)
	whole := p.label("whole")
	p.add(asm.JLT.Imm(asm.R0, wire.UDPLen, whole))
	p.within()
	p.place(whole)
	p.found(display.UDPHeader, level)
	if !p.beyond(display.TelemetryHeader) {
		return
	}
	rd, infiniband, aggregation := p.label("rd"), p.label("infiniband"), p.label("aggregation")
	p.load(offset, 0, 4, p.done)
	p.add(
		asm.Add.Imm(offset, wire.UDPLen),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, 0xFFFF), // the destination
		asm.RSh.Imm(asm.R0, 16),     // the source
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, 0xFFFF&^(wire.PortsRD-1)),
		asm.JEq.Imm(asm.R2, wire.PortRD, rd),
		asm.JEq.Imm(asm.R1, wire.PortAggregation, aggregation),
		asm.JEq.Imm(asm.R0, wire.PortAggregation, aggregation),
		asm.JEq.Imm(asm.R1, infinibandPort, infiniband),
		asm.JEq.Imm(asm.R0, infinibandPort, infiniband),
	)
	p.jump(p.done)
	p.place(rd)
	p.rd(level)
	p.jump(p.done)
	p.place(aggregation)
	p.atMost(offset, wire.AggregationLen, end, p.done)
	p.found(display.AggregationHeader, level)
	p.load(offset, 0, 1, p.done)
	p.add(asm.RSh.Imm(asm.R0, 4), asm.JNE.Imm(asm.R0, wire.AggregationVersion, p.done))
	p.found(display.AggregationOursHeader, level)
	p.jump(p.done)
	p.place(infiniband)
	p.infiniband(level)
}

const infinibandPort = infiniband.Port

// rd generates the parser of a reliable datagram.
func (p *parser) rd(level int) {
	p.atMost(offset, wire.RDBaseLen, end, p.done)
	p.load(offset, 0, 2, p.done) // version and type, flags
	base := p.label("base")
	p.add(asm.JSet.Imm(asm.R0, 0x8000, base))
	p.jump(p.done)
	p.place(base)
	p.found(display.RDHeader, level)
	sealed := p.label("sealed")
	p.add(
		asm.Mov.Reg(next, asm.R0),
		asm.RSh.Imm(next, 8),
		asm.And.Imm(next, 0x0F), // the type
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.RSh.Imm(asm.R1, 12),
		asm.And.Imm(asm.R1, 7),
		asm.JNE.Imm(asm.R1, wire.RDVersion, p.done),
		asm.JSet.Imm(asm.R0, int32(wire.RDEncrypted), sealed),
	)
	p.rdHeaders(level, func(int) {})
	p.jump(p.done)
	p.place(sealed)
	// The security header begins with the number of readable words that follow it. The places of a header's
	// fields count from the base.
	p.atMost(offset, wire.RDSealedLeast, end, p.done)
	p.load(offset, wire.RDBaseLen, 1, p.done)
	p.add(asm.Add.Imm(offset, wire.RDSecurityLen))
	p.rdHeaders(level, func(length int) {
		p.add(asm.JLT.Imm(asm.R0, int32((length-wire.RDBaseLen+3)/4), p.done))
	})
}

// rdHeaders generates the parser of the header after the base, by the type. check generates the conditions
// for a header of a length.
func (p *parser) rdHeaders(level int, check func(length int)) {
	for kind, h := range display.RDHeaders {
		if h == display.FrameHeader || !p.needs[h] {
			continue
		}
		other, length := p.label("type"), wire.RDHeaderLen(wire.RDType(kind))
		p.add(asm.JNE.Imm(next, int32(kind), other))
		check(length)
		p.atMost(offset, length, end, p.done)
		p.found(h, level)
		p.jump(p.done)
		p.place(other)
	}
}

// infiniband generates the parser of the headers of RoCEv2.
func (p *parser) infiniband(level int) {
	p.atMost(offset, infiniband.BTHLen, end, p.done)
	p.found(display.InfinibandHeader, level)
	p.load(offset, 0, 1, p.done)
	p.add(
		asm.Mov.Reg(next, asm.R0), // the opcode
		asm.StoreMem(asm.RFP, p.aside, end, asm.DWord),
		asm.Mov.Reg(end, offset),
		asm.Add.Imm(end, infiniband.BTHLen),
	)
	p.found(display.BTHHeader, level)
	p.add(asm.LoadMem(end, asm.RFP, p.aside, asm.DWord), asm.Add.Imm(offset, infiniband.BTHLen))
	last := -1
	for i, h := range display.InfinibandHeaders {
		if p.needs[h.Header] {
			last = i
		}
	}
	for _, h := range display.InfinibandHeaders[:last+1] {
		has, hasNot := p.label("has"), p.label("has-not")
		for opcode := range 256 {
			if infiniband.Opcode(opcode).Has(h.Of) {
				p.add(asm.JEq.Imm(next, int32(opcode), has))
			}
		}
		p.jump(hasNot)
		p.place(has)
		p.atMost(offset, h.Length, end, hasNot)
		p.add(
			asm.StoreMem(asm.RFP, p.aside, end, asm.DWord),
			asm.Mov.Reg(end, offset),
			asm.Add.Imm(end, int32(h.Length)),
		)
		p.found(h.Header, level)
		p.add(asm.Mov.Reg(offset, end), asm.LoadMem(end, asm.RFP, p.aside, asm.DWord))
		p.place(hasNot)
	}
}
