package display

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/agnivade/levenshtein"

	"railbed/capture/pcapng"
)

// Field is a field of packets.
type Field struct {
	Name string
	Kind Kind
	// values appends the values of a packet's field, one for each header that has it.
	values func(p *Packet, to []value) []value
	level  level
	bits   int // of a number, 64 where the format has no field of that width
}

// read is values, and notes whether the capture may have cut off a value.
func (f *Field) read(p *Packet, to []value) []value {
	if f.level >= p.hidden {
		p.unsure = true
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

// part is a field at a fixed place of a header: bits from a byte on, of which mask selects some. length is
// in bytes.
type part struct {
	name       string
	layer      protocol
	at, length int
	kind       Kind
	mask       uint64 // 0 selects all bits
}

// parts are the fields at fixed places of headers, in the order of the headers.
var parts = []part{
	{"eth.dst", ethernetLayer, 0, 6, Ethernet, 0},
	{"eth.src", ethernetLayer, 6, 6, Ethernet, 0},
	{"vlan.priority", vlanLayer, 0, 2, Unsigned, 0xE000},
	{"vlan.dei", vlanLayer, 0, 2, Boolean, 0x1000},
	{"vlan.id", vlanLayer, 0, 2, Unsigned, 0x0FFF},
	{"vlan.etype", vlanLayer, 2, 2, Unsigned, 0},
	{"arp.opcode", arpLayer, 6, 2, Unsigned, 0},
	{"arp.src.hw_mac", arpLayer, 8, 6, Ethernet, 0},
	{"arp.src.proto_ipv4", arpLayer, 14, 4, IPv4, 0},
	{"arp.dst.hw_mac", arpLayer, 18, 6, Ethernet, 0},
	{"arp.dst.proto_ipv4", arpLayer, 24, 4, IPv4, 0},
	{"macc.opcode", controlLayer, 0, 2, Unsigned, 0},
	{"ip.dsfield", ipLayer, 1, 1, Unsigned, 0},
	{"ip.dsfield.dscp", ipLayer, 1, 1, Unsigned, 0xFC},
	{"ip.dsfield.ecn", ipLayer, 1, 1, Unsigned, 0x03},
	{"ip.len", ipLayer, 2, 2, Unsigned, 0},
	{"ip.id", ipLayer, 4, 2, Unsigned, 0},
	{"ip.flags.df", ipLayer, 6, 1, Boolean, 0x40},
	{"ip.flags.mf", ipLayer, 6, 1, Boolean, 0x20},
	{"ip.ttl", ipLayer, 8, 1, Unsigned, 0},
	{"ip.proto", ipLayer, 9, 1, Unsigned, 0},
	{"ip.checksum", ipLayer, 10, 2, Unsigned, 0},
	{"ip.src", ipLayer, 12, 4, IPv4, 0},
	{"ip.dst", ipLayer, 16, 4, IPv4, 0},
	{"ipv6.version", ipv6Layer, 0, 1, Unsigned, 0xF0},
	{"ipv6.tclass", ipv6Layer, 0, 4, Unsigned, 0x0FF00000},
	{"ipv6.tclass.dscp", ipv6Layer, 0, 4, Unsigned, 0x0FC00000},
	{"ipv6.tclass.ecn", ipv6Layer, 0, 4, Unsigned, 0x00300000},
	{"ipv6.flow", ipv6Layer, 0, 4, Unsigned, 0x000FFFFF},
	{"ipv6.plen", ipv6Layer, 4, 2, Unsigned, 0},
	{"ipv6.nxt", ipv6Layer, 6, 1, Unsigned, 0},
	{"ipv6.hlim", ipv6Layer, 7, 1, Unsigned, 0},
	{"ipv6.src", ipv6Layer, 8, 16, IPv6, 0},
	{"ipv6.dst", ipv6Layer, 24, 16, IPv6, 0},
	{"icmp.type", icmpLayer, 0, 1, Unsigned, 0},
	{"icmp.code", icmpLayer, 1, 1, Unsigned, 0},
	{"icmpv6.type", icmpv6Layer, 0, 1, Unsigned, 0},
	{"icmpv6.code", icmpv6Layer, 1, 1, Unsigned, 0},
	{"udp.srcport", udpLayer, 0, 2, Unsigned, 0},
	{"udp.dstport", udpLayer, 2, 2, Unsigned, 0},
	{"udp.length", udpLayer, 4, 2, Unsigned, 0},
	{"udp.checksum", udpLayer, 6, 2, Unsigned, 0},
	{"tcp.srcport", tcpLayer, 0, 2, Unsigned, 0},
	{"tcp.dstport", tcpLayer, 2, 2, Unsigned, 0},
	{"tcp.seq_raw", tcpLayer, 4, 4, Unsigned, 0},
	{"tcp.ack_raw", tcpLayer, 8, 4, Unsigned, 0},
	{"tcp.flags", tcpLayer, 12, 2, Unsigned, 0x0FFF},
	{"tcp.flags.cwr", tcpLayer, 13, 1, Boolean, 0x80},
	{"tcp.flags.ece", tcpLayer, 13, 1, Boolean, 0x40},
	{"tcp.flags.urg", tcpLayer, 13, 1, Boolean, 0x20},
	{"tcp.flags.ack", tcpLayer, 13, 1, Boolean, 0x10},
	{"tcp.flags.push", tcpLayer, 13, 1, Boolean, 0x08},
	{"tcp.flags.reset", tcpLayer, 13, 1, Boolean, 0x04},
	{"tcp.flags.syn", tcpLayer, 13, 1, Boolean, 0x02},
	{"tcp.flags.fin", tcpLayer, 13, 1, Boolean, 0x01},
	{"tcp.window_size_value", tcpLayer, 14, 2, Unsigned, 0},
	{"tcp.checksum", tcpLayer, 16, 2, Unsigned, 0},
	{"infiniband.bth.opcode", bthLayer, 0, 1, Unsigned, 0},
	{"infiniband.bth.se", bthLayer, 1, 1, Boolean, 0x80},
	{"infiniband.bth.m", bthLayer, 1, 1, Boolean, 0x40},
	{"infiniband.bth.padcnt", bthLayer, 1, 1, Unsigned, 0x30},
	{"infiniband.bth.tver", bthLayer, 1, 1, Unsigned, 0x0F},
	{"infiniband.bth.p_key", bthLayer, 2, 2, Unsigned, 0},
	{"infiniband.bth.destqp", bthLayer, 5, 3, Unsigned, 0},
	{"infiniband.bth.a", bthLayer, 8, 1, Boolean, 0x80},
	{"infiniband.bth.psn", bthLayer, 9, 3, Unsigned, 0},
	{"infiniband.deth.q_key", dethLayer, 0, 4, Unsigned, 0},
	{"infiniband.deth.srcqp", dethLayer, 5, 3, Unsigned, 0},
	{"infiniband.reth.va", rethLayer, 0, 8, Unsigned, 0},
	{"infiniband.reth.r_key", rethLayer, 8, 4, Unsigned, 0},
	{"infiniband.reth.dmalen", rethLayer, 12, 4, Unsigned, 0},
	{"infiniband.atomiceth.swapdt", atomicLayer, 12, 8, Unsigned, 0},
	{"infiniband.atomiceth.cmpdt", atomicLayer, 20, 8, Unsigned, 0},
	{"infiniband.aeth.syndrome", aethLayer, 0, 1, Unsigned, 0},
	{"infiniband.aeth.msn", aethLayer, 1, 3, Unsigned, 0},
	{"infiniband.atomicacketh.origremdt", atomicAckLayer, 0, 8, Unsigned, 0},
	{"rd.version", rdLayer, 0, 1, Unsigned, 0x70},
	{"rd.type", rdLayer, 0, 1, Unsigned, 0x0F},
	{"rd.flags", rdLayer, 1, 1, Unsigned, 0},
	{"rd.flags.encrypted", rdLayer, 1, 1, Boolean, 0x80},
	{"rd.flags.repeat", rdLayer, 1, 1, Boolean, 0x40},
	{"rd.flags.imm", rdLayer, 1, 1, Boolean, 0x20},
	{"rd.flags.droppable", rdLayer, 1, 1, Boolean, 0x10},
	{"rd.flags.ack_request", rdLayer, 1, 1, Boolean, 0x08},
	{"rd.source", rdLayer, 2, 1, Unsigned, 0},
	{"rd.destination", rdLayer, 3, 1, Unsigned, 0},
	{"rd.tag", rdLayer, 4, 4, Unsigned, 0},
	{"rd.life", rdLayer, 8, 8, Unsigned, 0},
	{"rd.psn", rdLayer, 16, 4, Unsigned, 0},
	{"rd.length", rdLayer, 20, 2, Unsigned, 0},
	{"rd.data.key", rdDataLayer, 24, 8, Unsigned, 0},
	{"rd.data.offset", rdDataLayer, 32, 8, Unsigned, 0},
	{"rd.data.message", rdDataLayer, 40, 4, Unsigned, 0},
	{"rd.data.total", rdDataLayer, 44, 4, Unsigned, 0},
	{"rd.data.position", rdDataLayer, 48, 4, Unsigned, 0},
	{"rd.data.imm", rdDataLayer, 52, 4, Unsigned, 0},
	{"rd.data.timestamp", rdDataLayer, 56, 4, Unsigned, 0},
	{"rd.skip.count", rdSkipLayer, 24, 4, Unsigned, 0},
	{"rd.skip.message", rdSkipLayer, 28, 4, Unsigned, 0},
	{"rd.skip.total", rdSkipLayer, 32, 4, Unsigned, 0},
	{"rd.skip.bytes", rdSkipLayer, 44, 4, Unsigned, 0},
	{"rd.skip.position", rdSkipLayer, 48, 4, Unsigned, 0},
	{"rd.ack.limit", rdAckLayer, 24, 4, Unsigned, 0},
	{"rd.ack.delay", rdAckLayer, 32, 4, Unsigned, 0},
	{"rd.ack.duplicates", rdAckLayer, 36, 4, Unsigned, 0},
	{"rd.ack.received", rdAckLayer, 40, 4, Unsigned, 0},
	{"rd.ack.words", rdAckLayer, 44, 1, Unsigned, 0},
	{"rd.ack.echoes", rdAckLayer, 45, 1, Unsigned, 0},
	{"rd.ack.room", rdAckLayer, 46, 2, Unsigned, 0},
	{"rd.nack.reason", rdNackLayer, 24, 1, Unsigned, 0},
	{"rd.nack.path", rdNackLayer, 26, 2, Unsigned, 0},
	{"rd.nack.message", rdNackLayer, 28, 4, Unsigned, 0},
	{"rd.nack.detail", rdNackLayer, 32, 8, Unsigned, 0},
	{"rd.reject.reason", rdRejectLayer, 24, 1, Unsigned, 0},
	{"railbed_int.hop_words", telemetryLayer, 6, 1, Unsigned, 0x1F},
	{"railbed_int.remaining", telemetryLayer, 7, 1, Unsigned, 0},
	{"railbed_agg.version", aggregationLayer, 0, 1, Unsigned, 0xF0},
	{"railbed_agg.kind", aggregationLayer, 0, 1, Unsigned, 0x0F},
	{"railbed_agg.code", aggregationLayer, 3, 1, Unsigned, 0},
	{"railbed_agg.job", aggregationLayer, 4, 2, Unsigned, 0},
	{"railbed_agg.epoch", aggregationLayer, 6, 2, Unsigned, 0},
	{"railbed_agg.slot", aggregationLayer, 8, 2, Unsigned, 0},
	{"railbed_agg.worker", aggregationLayer, 10, 1, Unsigned, 0},
	{"railbed_agg.key", aggregationLayer, 12, 4, Unsigned, 0},
	{"railbed_agg.round", aggregationLayer, 16, 4, Unsigned, 0},
	{"railbed_agg.flags", aggregationOursLayer, 1, 1, Unsigned, 0},
	{"railbed_agg.flags.repeat", aggregationOursLayer, 1, 1, Boolean, 0x02},
	{"railbed_agg.flags.saturated", aggregationOursLayer, 1, 1, Boolean, 0x04},
	{"railbed_agg.op", aggregationOursLayer, 2, 1, Unsigned, 0xF0},
	{"railbed_agg.type", aggregationOursLayer, 2, 1, Unsigned, 0x0F},
	{"railbed_agg.fan_in", aggregationOursLayer, 11, 1, Unsigned, 0},
	{"railbed_agg.offset", aggregationOursLayer, 20, 4, Unsigned, 0},
	{"railbed_agg.bitmap", aggregationOursLayer, 24, 8, Unsigned, 0},
	{"railbed_agg.elements", aggregationOursLayer, 32, 2, Unsigned, 0},
	{"railbed_gfc.kind", gfcLayer, 5, 1, Unsigned, 0},
	{"railbed_gfc.enable", gfcLayer, 7, 1, Unsigned, 0},
}

// protocols are the fields of whole headers.
var protocols = []struct {
	name  string
	layer protocol
}{
	{"frame", frameLayer},
	{"eth", ethernetLayer},
	{"vlan", vlanLayer},
	{"arp", arpLayer},
	{"macc", controlLayer},
	{"ip", ipLayer}, {"ipv6", ipv6Layer}, {"icmp", icmpLayer}, {"icmpv6", icmpv6Layer}, {"udp", udpLayer},
	{"tcp", tcpLayer},
	{"infiniband", infinibandLayer},
	{"infiniband.bth", bthLayer},
	{"infiniband.deth", dethLayer},
	{"infiniband.reth", rethLayer}, {"infiniband.aeth", aethLayer}, {"infiniband.immdt", immLayer},
	{"infiniband.ieth", iethLayer}, {"infiniband.atomiceth", atomicLayer},
	{"infiniband.atomicacketh", atomicAckLayer}, {"rd", rdLayer}, {"railbed_int", telemetryLayer},
	{"railbed_agg", aggregationLayer}, {"railbed_gfc", gfcLayer},
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
var computed = []struct {
	name  string
	kind  Kind
	layer protocol
	// of returns the value, and whether the packet has it.
	of func(p *Packet, l layer) (value, bool)
}{
	{"eth.type", Unsigned, ethernetLayer, func(p *Packet, _ layer) (value, bool) {
		kind := p.u16(12)
		return number(kind), kind >= 1536 // smaller numbers are lengths (IEEE 802.3, 3.2.6)
	}},
	{"ip.version", Unsigned, ipLayer, func(p *Packet, l layer) (value, bool) {
		return number(int(p.Raw.Data[l.at] >> 4)), true
	}},
	{"ip.hdr_len", Unsigned, ipLayer, func(p *Packet, l layer) (value, bool) {
		return number(int(p.Raw.Data[l.at]&0xF) * 4), true
	}},
	{"ip.frag_offset", Unsigned, ipLayer, func(p *Packet, l layer) (value, bool) {
		return number(p.u16(l.at+6) & 0x1FFF * 8), true
	}},
	{"tcp.hdr_len", Unsigned, tcpLayer, func(p *Packet, l layer) (value, bool) {
		return number(int(p.Raw.Data[l.at+12]>>4) * 4), true
	}},
	{"tcp.len", Unsigned, tcpLayer, func(p *Packet, l layer) (value, bool) {
		length := l.end - l.at - int(p.Raw.Data[l.at+12]>>4)*4
		return number(length), length >= 0
	}},
	{"frame.number", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(p.Number), true
	}},
	{"frame.len", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(p.Raw.Length), true
	}},
	{"frame.cap_len", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(len(p.Raw.Data)), true
	}},
	{"frame.time_epoch", Seconds, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return value{n: p.Raw.Time}, p.Raw.Has&pcapng.HasTime != 0
	}},
	{"frame.time_relative", Seconds, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return value{n: p.Raw.Time - p.first}, p.Raw.Has&pcapng.HasTime != 0
	}},
	{"frame.interface_name", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return text(p.Interface.Name)
	}},
	{"frame.packet_id", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return value{n: int64(p.Raw.ID)}, p.Raw.Has&pcapng.HasID != 0
	}},
	{"frame.interface_queue", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(int(p.Raw.Queue)), p.Raw.Has&pcapng.HasQueue != 0
	}},
	{"frame.packet_flags_direction", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(int(p.Raw.Flags & 3)), p.Raw.Has&pcapng.HasFlags != 0
	}},
	{"railbed.node", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		node, _ := p.tap()
		return text(node)
	}},
	{"railbed.port", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		_, port := p.tap()
		return text(port)
	}},
	{"railbed.verdict", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return text(p.note.Verdict)
	}},
	{"railbed.reason", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return text(p.note.Reason)
	}},
	{"railbed.fault", Text, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return text(p.note.Name)
	}},
	{"railbed.depth", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return value{n: p.note.Depth}, p.note.HasDepth
	}},
	{"railbed.late", Seconds, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return value{n: int64(p.note.Late)}, p.note.HasLate
	}},
	{"railbed.rank", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) { return p.rank() }},
	{"run.message", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		return number(p.context.Message), p.context.Message > 0
	}},
	{"run.rank", Unsigned, frameLayer, func(p *Packet, _ layer) (value, bool) {
		if p.context.Rank == nil {
			return value{}, false
		}
		return number(*p.context.Rank), true
	}},
	{"railbed", Protocol, frameLayer, func(p *Packet, _ layer) (value, bool) { return value{}, p.annotated }},
}

func number(n int) value { return value{n: int64(n)} }

// rank returns the rank that sent the packet. A recording shows it where a packet leaves the NIC of one rank.
func (p *Packet) rank() (value, bool) {
	node, _ := p.tap()
	ranks := pcapng.ParseTapDescription(p.Interface.Description).Ranks
	if node == "" || len(ranks) != 1 || p.Raw.Flags&pcapng.DirectionMask != pcapng.Outbound {
		return value{}, false
	}
	return number(ranks[0]), true
}

func text(s string) (value, bool) { return value{b: []byte(s)}, s != "" }

func makeFields() (all []Field) {
	add := func(name string, kind Kind, l protocol, bits int, of func(*Packet, layer) (value, bool)) {
		all = append(all, Field{name, kind, func(p *Packet, to []value) []value {
			for _, at := range p.layers {
				if at.protocol != l {
					continue
				}
				if v, has := of(p, at); has {
					to = append(to, v)
				}
			}
			return to
		}, levelOf(l), bits})
	}
	for _, o := range protocols {
		add(o.name, Protocol, o.layer, 64, func(p *Packet, l layer) (value, bool) {
			from := min(l.at, len(p.Raw.Data))
			b := p.Raw.Data[from:max(from, min(l.end, len(p.Raw.Data)))]
			header := p.header(l)
			return value{n: int64(min(header, len(b))), b: b, cut: len(b) < l.end-l.at,
				cutHeader: len(b) < header}, true
		})
	}
	for i := range parts {
		o := &parts[i]
		add(o.name, o.kind, o.layer, o.bits(), o.of)
	}
	for _, o := range computed {
		add(o.name, o.kind, o.layer, 64, o.of)
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
		joined := Field{o.name, of[0].Kind, func(p *Packet, to []value) []value {
			for i := range of {
				to = of[i].values(p, to)
			}
			return to
		}, of[0].level, of[0].bits}
		for _, f := range of[1:] {
			joined.level, joined.bits = min(joined.level, f.level), max(joined.bits, f.bits)
		}
		all = append(all, joined)
	}
	slices.SortFunc(all, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// bits returns the width of the part.
func (o *part) bits() int {
	if o.mask != 0 {
		return bits.OnesCount64(o.mask)
	}
	return 8 * o.length
}

// of returns the part of a header.
func (o *part) of(p *Packet, l layer) (value, bool) {
	at := l.at + o.at
	if at+o.length > min(len(p.Raw.Data), l.end) {
		p.unsure = p.unsure || at+o.length <= l.end
		return value{}, false
	}
	b := p.Raw.Data[at : at+o.length]
	if !o.kind.isNumber() {
		return value{b: b}, true
	}
	var wide [8]byte
	copy(wide[8-o.length:], b)
	n := binary.BigEndian.Uint64(wide[:])
	if o.mask != 0 {
		n &= o.mask
		for mask := o.mask; mask&1 == 0; mask >>= 1 {
			n >>= 1
		}
	}
	return value{n: int64(n)}, true
}

// suggest returns a field in place of an unknown one, for an error message.
func suggest(name string) string {
	distance := func(f *Field) int { return levenshtein.ComputeDistance(name, f.Name) }
	near := slices.MinFunc(Fields, func(a, b Field) int { return cmp.Compare(distance(&a), distance(&b)) })
	if distance(&near) <= max(len(name)/3, 2) {
		return fmt.Sprintf("a field; did you mean %q?", near.Name)
	}
	return "a field such as ip.src"
}
