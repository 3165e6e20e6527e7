package display

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"railbed/capture/pcapng"
	"railbed/internal/nearest"
)

// Field is a field of packets.
type Field struct {
	Name string
	Kind Kind
	// Places are the places of the field's values, for fields at fixed places of headers. A field of a whole
	// header has a place of length 0, and so has a field that is computed from a header.
	Places []Place
	// values appends the values of a packet's field, one for each header that has it.
	values  func(p *Packet, to []value) []value
	headers headerSet // that have the field
	bits    int       // of a number, 64 where the format has no field of that width
}

// read is values, and notes why the packet may have other values.
func (f *Field) read(p *Packet, to []value) []value {
	if p.hiding&f.headers != 0 {
		for i := range p.hidden {
			if p.hidden[i]&f.headers != 0 {
				p.unseen |= 1 << i
			}
		}
	}
	return f.values(p, to)
}

// Fields are all fields, by name.
var Fields = makeFields()

var fieldsByName = func() map[string]*Field {
	all := map[string]*Field{}
	for i := range Fields {
		all[Fields[i].Name] = &Fields[i]
	}
	return all
}()

// Place is a place in a header: Length bytes from At on, in bytes from the header's start. Of numbers, Mask
// selects bits, which are moved to the right end and multiplied by Unit.
type Place struct {
	Header     Header
	At, Length int
	Mask       uint64 // 0 selects all bits
	Unit       uint64 // 0 stands for 1
}

// part is a field at a fixed place of a header: bits from a byte on, of which mask selects some. length is
// in bytes.
type part struct {
	name       string
	layer      Header
	at, length int
	kind       Kind
	mask       uint64 // 0 selects all bits
}

// partUnits are the units of the parts that count several bytes.
var partUnits = map[string]uint64{"ip.hdr_len": 4, "ip.frag_offset": 8, "tcp.hdr_len": 4}

// parts are the fields at fixed places of headers, in the order of the headers.
var parts = []part{
	{"eth.dst", EthernetHeader, 0, 6, Ethernet, 0},
	{"eth.src", EthernetHeader, 6, 6, Ethernet, 0},
	{"vlan.priority", VLANHeader, 0, 2, Unsigned, 0xE000},
	{"vlan.dei", VLANHeader, 0, 2, Boolean, 0x1000},
	{"vlan.id", VLANHeader, 0, 2, Unsigned, 0x0FFF},
	{"vlan.etype", VLANHeader, 2, 2, Unsigned, 0},
	{"arp.opcode", ARPHeader, 6, 2, Unsigned, 0},
	{"arp.src.hw_mac", ARPHeader, 8, 6, Ethernet, 0},
	{"arp.src.proto_ipv4", ARPHeader, 14, 4, IPv4, 0},
	{"arp.dst.hw_mac", ARPHeader, 18, 6, Ethernet, 0},
	{"arp.dst.proto_ipv4", ARPHeader, 24, 4, IPv4, 0},
	{"macc.opcode", ControlHeader, 0, 2, Unsigned, 0},
	{"ip.version", IPv4Header, 0, 1, Unsigned, 0xF0},
	{"ip.hdr_len", IPv4Header, 0, 1, Unsigned, 0x0F},
	{"ip.dsfield", IPv4Header, 1, 1, Unsigned, 0},
	{"ip.dsfield.dscp", IPv4Header, 1, 1, Unsigned, 0xFC},
	{"ip.dsfield.ecn", IPv4Header, 1, 1, Unsigned, 0x03},
	{"ip.len", IPv4Header, 2, 2, Unsigned, 0},
	{"ip.id", IPv4Header, 4, 2, Unsigned, 0},
	{"ip.flags.df", IPv4Header, 6, 1, Boolean, 0x40},
	{"ip.flags.mf", IPv4Header, 6, 1, Boolean, 0x20},
	{"ip.frag_offset", IPv4Header, 6, 2, Unsigned, 0x1FFF},
	{"ip.ttl", IPv4Header, 8, 1, Unsigned, 0},
	{"ip.proto", IPv4Header, 9, 1, Unsigned, 0},
	{"ip.checksum", IPv4Header, 10, 2, Unsigned, 0},
	{"ip.src", IPv4Header, 12, 4, IPv4, 0},
	{"ip.dst", IPv4Header, 16, 4, IPv4, 0},
	{"ipv6.version", IPv6Header, 0, 1, Unsigned, 0xF0},
	{"ipv6.tclass", IPv6Header, 0, 4, Unsigned, 0x0FF00000},
	{"ipv6.tclass.dscp", IPv6Header, 0, 4, Unsigned, 0x0FC00000},
	{"ipv6.tclass.ecn", IPv6Header, 0, 4, Unsigned, 0x00300000},
	{"ipv6.flow", IPv6Header, 0, 4, Unsigned, 0x000FFFFF},
	{"ipv6.plen", IPv6Header, 4, 2, Unsigned, 0},
	{"ipv6.nxt", IPv6Header, 6, 1, Unsigned, 0},
	{"ipv6.hlim", IPv6Header, 7, 1, Unsigned, 0},
	{"ipv6.src", IPv6Header, 8, 16, IPv6, 0},
	{"ipv6.dst", IPv6Header, 24, 16, IPv6, 0},
	{"icmp.type", ICMPHeader, 0, 1, Unsigned, 0},
	{"icmp.code", ICMPHeader, 1, 1, Unsigned, 0},
	{"icmpv6.type", ICMPv6Header, 0, 1, Unsigned, 0},
	{"icmpv6.code", ICMPv6Header, 1, 1, Unsigned, 0},
	{"udp.srcport", UDPHeader, 0, 2, Unsigned, 0},
	{"udp.dstport", UDPHeader, 2, 2, Unsigned, 0},
	{"udp.length", UDPHeader, 4, 2, Unsigned, 0},
	{"udp.checksum", UDPHeader, 6, 2, Unsigned, 0},
	{"tcp.srcport", TCPHeader, 0, 2, Unsigned, 0},
	{"tcp.dstport", TCPHeader, 2, 2, Unsigned, 0},
	{"tcp.seq_raw", TCPHeader, 4, 4, Unsigned, 0},
	{"tcp.ack_raw", TCPHeader, 8, 4, Unsigned, 0},
	{"tcp.hdr_len", TCPHeader, 12, 1, Unsigned, 0xF0},
	{"tcp.flags", TCPHeader, 12, 2, Unsigned, 0x0FFF},
	{"tcp.flags.cwr", TCPHeader, 13, 1, Boolean, 0x80},
	{"tcp.flags.ece", TCPHeader, 13, 1, Boolean, 0x40},
	{"tcp.flags.urg", TCPHeader, 13, 1, Boolean, 0x20},
	{"tcp.flags.ack", TCPHeader, 13, 1, Boolean, 0x10},
	{"tcp.flags.push", TCPHeader, 13, 1, Boolean, 0x08},
	{"tcp.flags.reset", TCPHeader, 13, 1, Boolean, 0x04},
	{"tcp.flags.syn", TCPHeader, 13, 1, Boolean, 0x02},
	{"tcp.flags.fin", TCPHeader, 13, 1, Boolean, 0x01},
	{"tcp.window_size_value", TCPHeader, 14, 2, Unsigned, 0},
	{"tcp.checksum", TCPHeader, 16, 2, Unsigned, 0},
	{"infiniband.bth.opcode", BTHHeader, 0, 1, Unsigned, 0},
	{"infiniband.bth.se", BTHHeader, 1, 1, Boolean, 0x80},
	{"infiniband.bth.m", BTHHeader, 1, 1, Boolean, 0x40},
	{"infiniband.bth.padcnt", BTHHeader, 1, 1, Unsigned, 0x30},
	{"infiniband.bth.tver", BTHHeader, 1, 1, Unsigned, 0x0F},
	{"infiniband.bth.p_key", BTHHeader, 2, 2, Unsigned, 0},
	{"infiniband.bth.destqp", BTHHeader, 5, 3, Unsigned, 0},
	{"infiniband.bth.a", BTHHeader, 8, 1, Boolean, 0x80},
	{"infiniband.bth.psn", BTHHeader, 9, 3, Unsigned, 0},
	{"infiniband.deth.q_key", DETHHeader, 0, 4, Unsigned, 0},
	{"infiniband.deth.srcqp", DETHHeader, 5, 3, Unsigned, 0},
	{"infiniband.reth.va", RETHHeader, 0, 8, Unsigned, 0},
	{"infiniband.reth.r_key", RETHHeader, 8, 4, Unsigned, 0},
	{"infiniband.reth.dmalen", RETHHeader, 12, 4, Unsigned, 0},
	{"infiniband.atomiceth.swapdt", AtomicHeader, 12, 8, Unsigned, 0},
	{"infiniband.atomiceth.cmpdt", AtomicHeader, 20, 8, Unsigned, 0},
	{"infiniband.aeth.syndrome", AETHHeader, 0, 1, Unsigned, 0},
	{"infiniband.aeth.msn", AETHHeader, 1, 3, Unsigned, 0},
	{"infiniband.atomicacketh.origremdt", AtomicAckHeader, 0, 8, Unsigned, 0},
	{"rd.version", RDHeader, 0, 1, Unsigned, 0x70},
	{"rd.type", RDHeader, 0, 1, Unsigned, 0x0F},
	{"rd.flags", RDHeader, 1, 1, Unsigned, 0},
	{"rd.flags.encrypted", RDHeader, 1, 1, Boolean, 0x80},
	{"rd.flags.repeat", RDHeader, 1, 1, Boolean, 0x40},
	{"rd.flags.imm", RDHeader, 1, 1, Boolean, 0x20},
	{"rd.flags.droppable", RDHeader, 1, 1, Boolean, 0x10},
	{"rd.flags.ack_request", RDHeader, 1, 1, Boolean, 0x08},
	{"rd.source", RDHeader, 2, 1, Unsigned, 0},
	{"rd.destination", RDHeader, 3, 1, Unsigned, 0},
	{"rd.tag", RDHeader, 4, 4, Unsigned, 0},
	{"rd.life", RDHeader, 8, 8, Unsigned, 0},
	{"rd.psn", RDHeader, 16, 4, Unsigned, 0},
	{"rd.length", RDHeader, 20, 2, Unsigned, 0},
	{"rd.data.key", RDDataHeader, 24, 8, Unsigned, 0},
	{"rd.data.offset", RDDataHeader, 32, 8, Unsigned, 0},
	{"rd.data.message", RDDataHeader, 40, 4, Unsigned, 0},
	{"rd.data.total", RDDataHeader, 44, 4, Unsigned, 0},
	{"rd.data.position", RDDataHeader, 48, 4, Unsigned, 0},
	{"rd.data.imm", RDDataHeader, 52, 4, Unsigned, 0},
	{"rd.data.timestamp", RDDataHeader, 56, 4, Unsigned, 0},
	{"rd.skip.count", RDSkipHeader, 24, 4, Unsigned, 0},
	{"rd.skip.message", RDSkipHeader, 28, 4, Unsigned, 0},
	{"rd.skip.total", RDSkipHeader, 32, 4, Unsigned, 0},
	{"rd.skip.bytes", RDSkipHeader, 44, 4, Unsigned, 0},
	{"rd.skip.position", RDSkipHeader, 48, 4, Unsigned, 0},
	{"rd.ack.limit", RDAckHeader, 24, 4, Unsigned, 0},
	{"rd.ack.delay", RDAckHeader, 32, 4, Unsigned, 0},
	{"rd.ack.duplicates", RDAckHeader, 36, 4, Unsigned, 0},
	{"rd.ack.received", RDAckHeader, 40, 4, Unsigned, 0},
	{"rd.ack.words", RDAckHeader, 44, 1, Unsigned, 0},
	{"rd.ack.echoes", RDAckHeader, 45, 1, Unsigned, 0},
	{"rd.ack.room", RDAckHeader, 46, 2, Unsigned, 0},
	{"rd.nack.reason", RDNackHeader, 24, 1, Unsigned, 0},
	{"rd.nack.path", RDNackHeader, 26, 2, Unsigned, 0},
	{"rd.nack.message", RDNackHeader, 28, 4, Unsigned, 0},
	{"rd.nack.detail", RDNackHeader, 32, 8, Unsigned, 0},
	{"rd.reject.reason", RDRejectHeader, 24, 1, Unsigned, 0},
	{"railbed_int.hop_words", TelemetryHeader, 6, 1, Unsigned, 0x1F},
	{"railbed_int.remaining", TelemetryHeader, 7, 1, Unsigned, 0},
	{"railbed_agg.version", AggregationHeader, 0, 1, Unsigned, 0xF0},
	{"railbed_agg.kind", AggregationHeader, 0, 1, Unsigned, 0x0F},
	{"railbed_agg.code", AggregationHeader, 3, 1, Unsigned, 0},
	{"railbed_agg.job", AggregationHeader, 4, 2, Unsigned, 0},
	{"railbed_agg.epoch", AggregationHeader, 6, 2, Unsigned, 0},
	{"railbed_agg.slot", AggregationHeader, 8, 2, Unsigned, 0},
	{"railbed_agg.worker", AggregationHeader, 10, 1, Unsigned, 0},
	{"railbed_agg.key", AggregationHeader, 12, 4, Unsigned, 0},
	{"railbed_agg.round", AggregationHeader, 16, 4, Unsigned, 0},
	{"railbed_agg.flags", AggregationOursHeader, 1, 1, Unsigned, 0},
	{"railbed_agg.flags.repeat", AggregationOursHeader, 1, 1, Boolean, 0x02},
	{"railbed_agg.flags.saturated", AggregationOursHeader, 1, 1, Boolean, 0x04},
	{"railbed_agg.op", AggregationOursHeader, 2, 1, Unsigned, 0xF0},
	{"railbed_agg.type", AggregationOursHeader, 2, 1, Unsigned, 0x0F},
	{"railbed_agg.fan_in", AggregationOursHeader, 11, 1, Unsigned, 0},
	{"railbed_agg.offset", AggregationOursHeader, 20, 4, Unsigned, 0},
	{"railbed_agg.bitmap", AggregationOursHeader, 24, 8, Unsigned, 0},
	{"railbed_agg.elements", AggregationOursHeader, 32, 2, Unsigned, 0},
	{"railbed_gfc.kind", GFCHeader, 5, 1, Unsigned, 0},
	{"railbed_gfc.enable", GFCHeader, 7, 1, Unsigned, 0},
}

// protocols are the fields of whole headers.
var protocols = []struct {
	name  string
	layer Header
}{
	{"frame", FrameHeader},
	{"eth", EthernetHeader},
	{"vlan", VLANHeader},
	{"arp", ARPHeader},
	{"macc", ControlHeader},
	{"ip", IPv4Header}, {"ipv6", IPv6Header}, {"icmp", ICMPHeader}, {"icmpv6", ICMPv6Header},
	{"udp", UDPHeader},
	{"tcp", TCPHeader},
	{"infiniband", InfinibandHeader},
	{"infiniband.bth", BTHHeader},
	{"infiniband.deth", DETHHeader},
	{"infiniband.reth", RETHHeader}, {"infiniband.aeth", AETHHeader}, {"infiniband.immdt", ImmediateHeader},
	{"infiniband.ieth", IETHHeader}, {"infiniband.atomiceth", AtomicHeader},
	{"infiniband.atomicacketh", AtomicAckHeader}, {"rd", RDHeader}, {"railbed_int", TelemetryHeader},
	{"railbed_agg", AggregationHeader}, {"railbed_gfc", GFCHeader},
}

// unions are fields with the values of several others.
var unions = []struct {
	name string
	of   []string
}{
	{"ip.version", []string{"ip.version", "ipv6.version"}}, // as in Wireshark
	{"eth.addr", []string{"eth.dst", "eth.src"}},
	{"ip.addr", []string{"ip.src", "ip.dst"}},
	{"ipv6.addr", []string{"ipv6.src", "ipv6.dst"}},
	{"udp.port", []string{"udp.srcport", "udp.dstport"}},
	{"tcp.port", []string{"tcp.srcport", "tcp.dstport"}},
	// A switch adds up one message of each worker for each round of a slot.
	{"railbed.message", []string{"rd.data.message", "rd.skip.message", "rd.nack.message",
		"railbed_agg.round"}},
}

// computed are the fields that are not at a fixed place of a header.
var computed = []computedField{
	{"eth.type", Unsigned, EthernetHeader, func(p *Packet, l Layer) (value, bool) {
		kind := p.u16(l.At + 12)
		return number(kind), kind >= 1536 // smaller numbers are lengths (IEEE 802.3, 3.2.6)
	}},
	{"tcp.len", Unsigned, TCPHeader, func(p *Packet, l Layer) (value, bool) {
		length := l.End - l.At - int(p.Raw.Data[l.At+12]>>4)*4
		return number(length), length >= 0
	}},
	{"frame.number", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return number(p.Number), true
	}},
	{"frame.len", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return number(p.Raw.Length), true
	}},
	{"frame.cap_len", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return number(len(p.Raw.Data)), true
	}},
	{"frame.time_epoch", Seconds, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{n: p.Raw.Time}, p.recorded(p.Raw.Has&pcapng.HasTime != 0)
	}},
	{"frame.time_relative", Seconds, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{n: p.Raw.Time - p.first}, p.recorded(p.Raw.Has&pcapng.HasTime != 0)
	}},
	{"frame.interface_name", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		p.recorded(p.Interface.Name != "")
		return text(p.Interface.Name)
	}},
	{"frame.packet_id", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{n: int64(p.Raw.ID)}, p.recorded(p.Raw.Has&pcapng.HasID != 0)
	}},
	{"frame.interface_queue", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return number(int(p.Raw.Queue)), p.Raw.Has&pcapng.HasQueue != 0
	}},
	{"frame.packet_flags_direction", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		direction := p.Raw.Flags & pcapng.DirectionMask
		// Direction 0 stands for no information. Railbed's records have it if the packet does not pass the
		// tap.
		p.recorded(direction != 0 || p.annotated)
		return number(int(direction)), p.Raw.Has&pcapng.HasFlags != 0
	}},
	{"railbed.node", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		node, _ := p.tap()
		p.recorded(node != "")
		return text(node)
	}},
	{"railbed.port", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		_, port := p.tap()
		p.recorded(port != "")
		return text(port)
	}},
	{"railbed.verdict", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return text(p.note.Verdict)
	}},
	{"railbed.reason", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return text(p.note.Reason)
	}},
	{"railbed.fault", Text, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return text(p.note.Name)
	}},
	{"railbed.depth", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{n: p.note.Depth}, p.note.HasDepth
	}},
	{"railbed.late", Seconds, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{n: int64(p.note.Late)}, p.note.HasLate
	}},
	{"railbed.rank", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) { return p.rank() }},
	{"run.message", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return number(p.context.Message), p.context.Message > 0
	}},
	{"run.rank", Unsigned, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		if p.context.Rank == nil {
			return value{}, false
		}
		return number(*p.context.Rank), true
	}},
	{"railbed", Protocol, FrameHeader, func(p *Packet, _ Layer) (value, bool) {
		return value{}, p.annotated
	}},
}

// computedField is a field that is computed from a header.
type computedField struct {
	name  string
	kind  Kind
	layer Header
	// of returns the value, and whether the packet has it.
	of func(p *Packet, l Layer) (value, bool)
}

func number(n int) value { return value{n: int64(n)} }

// rank returns the rank that sent the packet. A recording shows it where a packet leaves the NIC of one rank.
func (p *Packet) rank() (value, bool) {
	node, _ := p.tap()
	described := pcapng.ParseTapDescription(p.Interface.Description)
	leaves := node != "" && p.Raw.Flags&pcapng.DirectionMask == pcapng.Outbound
	if leaves && len(described.Ranks) == 1 {
		return number(described.Ranks[0]), true
	}
	p.recorded(leaves && len(described.Ranks) == 0 && p.Interface.Hardware == pcapng.HardwareNIC)
	return value{}, false
}

func text(s string) (value, bool) { return value{b: []byte(s)}, s != "" }

func makeFields() (all []Field) {
	add := func(name string, kind Kind, place Place, bits int, of func(*Packet, Layer) (value, bool)) {
		all = append(all, Field{name, kind, []Place{place}, func(p *Packet, to []value) []value {
			for _, at := range p.layers {
				if at.Header != place.Header {
					continue
				}
				if v, has := of(p, at); has {
					to = append(to, v)
				}
			}
			return to
		}, setOf(place.Header), bits})
	}
	for _, o := range protocols {
		add(o.name, Protocol, Place{Header: o.layer}, 64, func(p *Packet, l Layer) (value, bool) {
			from := min(l.At, len(p.Raw.Data))
			b := p.Raw.Data[from:max(from, min(l.End, len(p.Raw.Data)))]
			header := p.header(l)
			return value{n: int64(min(header, len(b))), b: b, cut: len(b) < l.End-l.At,
				cutHeader: len(b) < header}, true
		})
	}
	for i := range parts {
		o := &parts[i]
		place := Place{o.layer, o.at, o.length, o.mask, partUnits[o.name]}
		add(o.name, o.kind, place, place.bits(), func(p *Packet, l Layer) (value, bool) {
			return place.of(p, l, o.kind)
		})
	}
	for _, o := range append(slices.Clone(computed), analysed()...) {
		add(o.name, o.kind, Place{Header: o.layer}, 64, o.of)
	}
	byName := map[string]Field{}
	for _, f := range all {
		byName[f.Name] = f
	}
	for _, o := range unions {
		var of []Field
		for _, name := range o.of {
			of = append(of, byName[name])
		}
		all = slices.DeleteFunc(all, func(f Field) bool { return f.Name == o.name })
		joined := Field{o.name, of[0].Kind, nil, func(p *Packet, to []value) []value {
			for i := range of {
				to = of[i].values(p, to)
			}
			return to
		}, 0, of[0].bits}
		for _, f := range of {
			joined.Places = append(joined.Places, f.Places...)
			joined.headers, joined.bits = joined.headers|f.headers, max(joined.bits, f.bits)
		}
		all = append(all, joined)
	}
	slices.SortFunc(all, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// bits returns the width of the field.
func (o *Place) bits() int {
	switch {
	case o.Unit > 0:
		return 64
	case o.Mask != 0:
		return bits.OnesCount64(o.Mask)
	}
	return 8 * o.Length
}

// of returns the field of a header.
func (o *Place) of(p *Packet, l Layer, kind Kind) (value, bool) {
	at := l.At + o.At
	data := p.bytes(l)
	if at+o.Length > min(len(data), l.End) {
		if at+o.Length <= l.End {
			p.unseen |= CutOff
		}
		return value{}, false
	}
	b := data[at : at+o.Length]
	if !kind.isNumber() {
		return value{b: b}, true
	}
	var wide [8]byte
	copy(wide[8-o.Length:], b)
	n := binary.BigEndian.Uint64(wide[:])
	if o.Mask != 0 {
		n = n & o.Mask >> bits.TrailingZeros64(o.Mask)
	}
	return value{n: int64(n * max(o.Unit, 1))}, true
}

// suggest returns a field in place of an unknown one, for an error message.
func suggest(name string) string {
	names := make([]string, len(Fields))
	for i := range Fields {
		names[i] = Fields[i].Name
	}
	if near := nearest.Word(name, names); near != "" {
		return fmt.Sprintf("a field; did you mean %q?", near)
	}
	return "a field such as ip.src"
}
