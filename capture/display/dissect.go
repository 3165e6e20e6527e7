package display

import (
	"encoding/binary"
	"regexp"
	"slices"

	"railbed/capture/pcapng"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/transports/rd/privacy"
)

// Header is a header that a packet may have.
type Header uint8

// Headers, in the order in which packets have them.
const (
	FrameHeader Header = iota // the whole frame
	EthernetHeader
	VLANHeader
	ARPHeader
	ControlHeader // MAC control
	GFCHeader
	IPv4Header
	IPv6Header
	ICMPHeader
	ICMPv6Header
	UDPHeader
	TCPHeader
	TelemetryHeader
	AggregationHeader
	AggregationOursHeader // of the version that package wire reads
	InfinibandHeader
	BTHHeader
	DETHHeader
	RETHHeader
	AtomicHeader
	AETHHeader
	AtomicAckHeader
	ImmediateHeader
	IETHHeader
	RDHeader
	RDDataHeader
	RDSkipHeader
	RDAckHeader
	RDNackHeader
	RDProbeHeader
	RDRejectHeader
)

// Layer is a header in a packet. Its bytes from At on are followed by its payload, up to End. The captured
// bytes may end before.
type Layer struct {
	Header  Header
	At, End int
	plain   bool // At and End are places in the decrypted datagram
}

// Packet is a packet with the places of its headers.
type Packet struct {
	Raw       *pcapng.Packet
	Interface *pcapng.Interface
	Number    int // in the capture, from 1

	// Keys decrypt reliable datagrams. They may be nil.
	Keys *privacy.KeyLog

	context     Context
	analysis    *analysis // nil without Analyse
	first       int64     // time of the capture's first packet
	layers      []Layer
	note        pcapng.Annotation
	annotated   bool
	left, right []value // of a comparison
	plain       []byte  // the decrypted datagram, nil without one
	nesting     int     // headers of packets in each other
	// hidden has the headers that the packet may have and its record does not show, by reason (Unseen).
	// hiding is their union.
	hidden  [unseenReasons]headerSet
	hiding  headerSet
	carrier carrier
	// unseen are the reasons why the operands of a comparison may have other values.
	unseen Unseen
}

// Set makes p the packet of the record with a number, in a capture whose first packet has the time first.
// It reuses the memory of p.
func (p *Packet) Set(raw *pcapng.Packet, at *pcapng.Interface, number int, first int64) {
	p.Dissect(raw, at, number, first)
	p.AddSegment()
}

// Layers returns the headers, the outermost first. They are valid until the next Set.
func (p *Packet) Layers() []Layer { return p.layers }

// Annotation returns a switch's record of the packet, if there is one.
func (p *Packet) Annotation() (note pcapng.Annotation, annotated bool) { return p.note, p.annotated }

// Dissect is Set without AddSegment.
func (p *Packet) Dissect(raw *pcapng.Packet, at *pcapng.Interface, number int, first int64) {
	p.Raw, p.Interface, p.Number, p.first, p.context = raw, at, number, first, Context{}
	p.layers = append(p.layers[:0], Layer{Header: FrameHeader, End: p.Raw.Length})
	p.note, p.annotated = pcapng.Annotation{}, false
	p.hidden, p.hiding, p.carrier, p.plain, p.nesting = [unseenReasons]headerSet{}, 0, carrier{}, nil, 0
	for _, comment := range p.Raw.Comments {
		if note, is := pcapng.ParseAnnotation(comment); is {
			p.note, p.annotated = note, true
		}
	}
	p.link(p.Raw.Length)
}

// has reports whether the capture has a header: n bytes from at on, before end. If the capture cut it off, so
// are all headers of a set.
func (p *Packet) has(set headerSet, at, n, end int) bool {
	if at+n > end {
		return false
	}
	if at+n > len(p.Raw.Data) {
		p.hide(CutOff, set)
		return false
	}
	return true
}

// bytes returns the bytes in which a layer has its place.
func (p *Packet) bytes(l Layer) []byte {
	if l.plain {
		return p.plain
	}
	return p.Raw.Data
}

// captured returns the captured bytes from at to end.
func (p *Packet) captured(at, end int) []byte {
	return p.Raw.Data[min(at, len(p.Raw.Data)):min(end, max(at, len(p.Raw.Data)))]
}

func (p *Packet) add(l Header, at, end int) {
	p.layers = append(p.layers, Layer{Header: l, At: at, End: end})
}

func (p *Packet) u16(at int) int { return int(binary.BigEndian.Uint16(p.Raw.Data[at:])) }

func (p *Packet) ethernet(at, end int) {
	if !p.nested() || !p.has(anything, at, wire.EthernetLen, end) {
		return
	}
	p.add(EthernetHeader, at, end)
	p.etherType(p.u16(at+wire.EthernetLen-2), at+wire.EthernetLen, end)
}

// etherType finds the headers behind the type of an Ethernet frame, or its length (IEEE 802.3, 3.2.6).
func (p *Packet) etherType(kind, at, end int) {
	for wire.IsTag(uint16(kind)) {
		if !p.has(anything, at, wire.TagLen, end) {
			return
		}
		p.add(VLANHeader, at, end)
		kind = p.u16(at + 2)
		at += wire.TagLen
	}
	switch kind {
	case wire.EtherTypeIPv4:
		p.ipv4(at, end)
	case wire.EtherTypeIPv6:
		p.ipv6(at, end)
	case wire.EtherTypeARP:
		if p.has(setOf(ARPHeader), at, wire.ARPLen, end) {
			p.add(ARPHeader, at, end)
		}
	case wire.EtherTypeMACControl:
		p.add(ControlHeader, at, end)
		if p.has(setOf(GFCHeader), at, wire.GFCLen, end) && wire.GFC(p.Raw.Data[at:]).Valid() {
			p.add(GFCHeader, at, at+wire.GFCLen)
		}
	default:
		p.tunnelOfEthernet(kind, at, end)
	}
}

func (p *Packet) ipv4(at, end int) {
	if !p.nested() || !p.has(anything, at, wire.IPv4MinLen, end) || p.Raw.Data[at]>>4 != 4 {
		return
	}
	header := int(p.Raw.Data[at]&0xF) * 4
	if length := p.u16(at + 2); length >= max(header, wire.IPv4MinLen) {
		end = min(end, at+length)
	}
	p.add(IPv4Header, at, end)
	number, fragment := p.Raw.Data[at+9], p.u16(at+6)
	switch {
	case header < wire.IPv4MinLen:
	case fragment&0x1FFF != 0:
		p.hide(Fragmented, fragmented(number))
	default:
		if fragment&0x2000 != 0 && number != wire.ProtocolTCP { // the next fragment has more of it
			p.hide(Fragmented, messages)
		}
		p.transport(number, at+header, end, ICMPHeader)
	}
}

// fragmented returns the headers of an IP protocol that a later fragment lacks.
func fragmented(number uint8) headerSet {
	switch number {
	case wire.ProtocolUDP:
		return setOf(UDPHeader) | messages
	case wire.ProtocolTCP:
		return setOf(TCPHeader)
	case wire.ProtocolICMPv4:
		return setOf(ICMPHeader)
	case wire.ProtocolICMPv6:
		return setOf(ICMPv6Header)
	}
	return anything
}

// ExtensionHeaders are the numbers of the extension headers of IPv6 with a length: hop-by-hop options,
// routing and destination options (RFC 8200, 4).
var ExtensionHeaders = []uint8{0, 43, 60}

// FragmentExtension is the number of the fragment header of IPv6, which has eight bytes.
const FragmentExtension = 44

func (p *Packet) ipv6(at, end int) {
	if !p.nested() || !p.has(anything, at, wire.IPv6Len, end) || p.Raw.Data[at]>>4 != 6 {
		return
	}
	if length := p.u16(at + 4); length > 0 {
		end = min(end, at+wire.IPv6Len+length)
	}
	p.add(IPv6Header, at, end)
	next := p.Raw.Data[at+6]
	at += wire.IPv6Len
	for slices.Contains(ExtensionHeaders, next) || next == FragmentExtension {
		if !p.has(anything, at, 8, end) {
			return
		}
		length := 8
		switch {
		case next != FragmentExtension:
			length += 8 * int(p.Raw.Data[at+1])
		case p.u16(at+2)&^7 != 0:
			p.hide(Fragmented, fragmented(p.Raw.Data[at]))
			return
		case p.u16(at+2)&1 != 0 && p.Raw.Data[at] != wire.ProtocolTCP:
			p.hide(Fragmented, messages)
		}
		next = p.Raw.Data[at]
		at += length
	}
	p.transport(next, at, end, ICMPv6Header)
}

// transport finds the header of an IP protocol. icmp is the ICMP of the IP version.
func (p *Packet) transport(number uint8, at, end int, icmp Header) {
	switch {
	case number == wire.ProtocolUDP:
		if !p.has(anything, at, wire.UDPLen, end) {
			return
		}
		if length := p.u16(at + 4); length >= wire.UDPLen {
			end = min(end, at+length)
		}
		p.add(UDPHeader, at, end)
		p.datagram(at+wire.UDPLen, end, p.u16(at), p.u16(at+2))
	case number == wire.ProtocolTCP:
		if p.has(setOf(TCPHeader), at, wire.TCPMinLen, end) {
			p.add(TCPHeader, at, end)
		}
	case number == wire.ProtocolICMPv4 && icmp == ICMPHeader:
		if !p.has(anything, at, 8, end) {
			return
		}
		p.add(ICMPHeader, at, end)
		if slices.Contains(QuotesIPv4, p.Raw.Data[at]) {
			p.ipv4(at+8, end)
		}
	case number == wire.ProtocolICMPv6 && icmp == ICMPv6Header:
		if !p.has(anything, at, 8, end) {
			return
		}
		p.add(ICMPv6Header, at, end)
		if slices.Contains(QuotesIPv6, p.Raw.Data[at]) {
			p.ipv6(at+8, end)
		}
	default:
		p.tunnelOfIP(number, at, end, icmp)
	}
}

// Types of ICMP messages that quote the packet that caused them (RFC 792, RFC 4443).
var (
	QuotesIPv4 = []uint8{3, 4, 5, 11, 12}
	QuotesIPv6 = []uint8{1, 2, 3, 4}
)

// datagram finds the headers of the protocols over UDP.
func (p *Packet) datagram(at, end, source, destination int) {
	if destination == wire.PortINT || wire.IsPortRD(uint16(destination)) {
		if block := wire.INT(p.captured(at, end)); block.Valid() {
			p.add(TelemetryHeader, at, end)
			at, destination = at+block.Len(), int(block.NextPort())
		} else if len(block) < end-at && (len(block) < wire.INTLen || block.Starts()) {
			p.hide(CutOff, messages)
		}
	}
	switch {
	case wire.IsPortRD(uint16(destination)):
		p.reliable(at, end)
	case destination == wire.PortAggregation || source == wire.PortAggregation:
		if p.has(messages, at, wire.AggregationLen, end) {
			p.add(AggregationHeader, at, end)
			if wire.Aggregation(p.captured(at, end)).Version() == wire.AggregationVersion {
				p.add(AggregationOursHeader, at, end)
			}
		}
	case destination == infiniband.Port || source == infiniband.Port:
		p.infiniband(at, end)
	default:
		p.tunnelOfUDP(at, end, source, destination)
	}
}

// RDHeaders are the headers after the base of reliable datagrams, by type. FrameHeader stands for none.
var RDHeaders = [wire.RDTypes]Header{
	wire.RDData:   RDDataHeader,
	wire.RDSkip:   RDSkipHeader,
	wire.RDAck:    RDAckHeader,
	wire.RDNack:   RDNackHeader,
	wire.RDProbe:  RDProbeHeader,
	wire.RDReject: RDRejectHeader,
}

func (p *Packet) reliable(at, end int) {
	if !p.has(messages, at, wire.RDBaseLen, end) {
		return
	}
	d := wire.RD(p.captured(at, end))
	if !d.HasBase() {
		return
	}
	p.add(RDHeader, at, end)
	switch kind := d.Type(); {
	case d.Version() != wire.RDVersion || int(kind) >= len(RDHeaders) || RDHeaders[kind] == 0:
	case d.Sealed():
		p.open(at, end, kind)
	case p.has(setOf(RDHeaders[kind]), at, wire.RDHeaderLen(kind), end):
		p.add(RDHeaders[kind], at, end)
	}
}

// InfinibandHeaders are the headers after a BTH, in their order, with their lengths in bytes.
var InfinibandHeaders = []struct {
	Of     infiniband.Header
	Length int
	Header Header
}{
	{infiniband.HasDETH, infiniband.DETHLen, DETHHeader},
	{infiniband.HasRETH, infiniband.RETHLen, RETHHeader},
	{infiniband.HasAtomicETH, infiniband.AtomicETHLen, AtomicHeader},
	{infiniband.HasAETH, infiniband.AETHLen, AETHHeader},
	{infiniband.HasAtomicAckETH, infiniband.AtomicAckETHLen, AtomicAckHeader},
	{infiniband.HasImmDt, infiniband.ImmDtLen, ImmediateHeader},
	{infiniband.HasIETH, infiniband.IETHLen, IETHHeader},
}

func (p *Packet) infiniband(at, end int) {
	if !p.has(messages, at, infiniband.BTHLen, end) {
		return
	}
	p.add(InfinibandHeader, at, end)
	p.add(BTHHeader, at, at+infiniband.BTHLen)
	opcode, next := infiniband.Opcode(p.Raw.Data[at]), at+infiniband.BTHLen
	for _, h := range InfinibandHeaders {
		if opcode.Has(h.Of) && p.has(messages, next, h.Length, end) {
			p.add(h.Header, next, next+h.Length)
			next += h.Length
		}
	}
}

// header returns the length of a layer's header. For protocols at the end of a packet it is everything.
func (p *Packet) header(l Layer) int {
	switch l.Header {
	case EthernetHeader:
		return wire.EthernetLen
	case VLANHeader:
		return wire.TagLen
	case IPv4Header:
		return int(p.Raw.Data[l.At]&0xF) * 4
	case IPv6Header:
		return wire.IPv6Len
	case UDPHeader:
		return wire.UDPLen
	case TCPHeader:
		return int(p.Raw.Data[l.At+12]>>4) * 4
	}
	return l.End - l.At
}

// tapForm matches the names of Railbed's interfaces: the name of a node or switch, and the name of its port.
var tapForm = regexp.MustCompile(`^([a-z][a-z0-9-]*):([A-Za-z0-9._-]+)$`)

// tap returns the node and the port of the packet's tap, or "" for an interface of another program.
func (p *Packet) tap() (node, port string) {
	parts := tapForm.FindStringSubmatch(p.Interface.Name)
	if parts == nil {
		return "", ""
	}
	return parts[1], parts[2]
}
