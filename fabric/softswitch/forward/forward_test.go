package forward

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// generated is the plan of a generator with params as "k=v" words.
func generated(t testing.TB, topology string, params ...string) *plan.Plan {
	t.Helper()
	s := &spec.Testbed{Name: "t", Seed: 1, Fabric: spec.Fabric{Topology: topology}}
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		var n int
		fmt.Sscan(value, &n)
		s.Fabric.Params = append(s.Fabric.Params, spec.Entry[int]{Key: key, Value: n})
	}
	return compiled(t, s)
}

func compiled(t testing.TB, s *spec.Testbed) *plan.Plan {
	t.Helper()
	s.Fabric.Switch.Kind = spec.Router
	p, err := plan.Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wired is the plan of an explicit topology.
func wired(t testing.TB, hosts, switches string, connect ...string) *plan.Plan {
	t.Helper()
	s := &spec.Testbed{Name: "t", Fabric: spec.Fabric{Topology: spec.Explicit, Hosts: strings.Fields(hosts),
		Connect: connect}}
	for _, name := range strings.Fields(switches) {
		s.Fabric.Switches = append(s.Fabric.Switches, spec.Entry[spec.Switch]{Key: name})
	}
	return compiled(t, s)
}

// depths are the queued bytes at each port.
type depths []int64

func (d depths) Waiting(port int) int64 {
	if port < len(d) {
		return d[port]
	}
	return 0
}

func newPool(t testing.TB) *packet.Pool {
	t.Helper()
	pool, err := packet.NewPool(64<<20, 9216)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// table is the table of a switch with a way of balancing; "" leaves the plan's.
func table(t testing.TB, p *plan.Plan, name, balance string, pool *packet.Pool, waiting Depths) Table {
	t.Helper()
	sw := *p.Switch(name)
	if balance != "" {
		sw.Soft = &plan.SoftSwitch{LoadBalance: balance, FlowletGap: 50_000}
	}
	made, err := New(p, &sw, pool, waiting)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// datagram describes a datagram that a test sends; its zero fields have sensible values.
type datagram struct {
	src, dst         netip.Addr
	srcMAC, dstMAC   plan.MAC
	srcPort, dstPort uint16
	protocol         uint8 // UDP
	ttl              uint8 // 64
	tos              uint8
	payload          []byte // behind UDP's header, or of another protocol
	dontFragment     bool
	offset           uint16
	more             bool
	badChecksum      bool // of UDP; there is none otherwise
	flow, ordinal    uint64
	flowLabel        uint32
}

// packet builds the frame in memory of a pool, so that it is as long as it will be.
func (d datagram) packet(pool *packet.Pool) *packet.Packet {
	one := pool.Get()
	v4 := d.dst.Is4()
	if d.protocol == 0 {
		d.protocol = wire.ProtocolUDP
	}
	if d.ttl == 0 {
		d.ttl = 64
	}
	payload := d.payload
	if d.protocol == wire.ProtocolUDP && d.offset == 0 {
		payload = make([]byte, wire.UDPLen+len(d.payload))
		binary.BigEndian.PutUint16(payload, d.srcPort)
		binary.BigEndian.PutUint16(payload[2:], d.dstPort)
		binary.BigEndian.PutUint16(payload[4:], uint16(len(payload)))
		copy(payload[wire.UDPLen:], d.payload)
		if d.badChecksum {
			payload[6] = 1
		}
	}
	header, kind := wire.IPv6Len, uint16(wire.EtherTypeIPv6)
	if v4 {
		header, kind = wire.IPv4MinLen, wire.EtherTypeIPv4
	}
	one.Data = one.Data[:wire.EthernetLen+header+len(payload)]
	clear(one.Data)
	wire.Ethernet(one.Data).Encode(
		&wire.EthernetFields{Dst: wire.MAC(d.dstMAC), Src: wire.MAC(d.srcMAC), EtherType: kind})
	copy(one.Data[wire.EthernetLen+header:], payload)
	if v4 {
		wire.IPv4(one.Data[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
			DSCP:          d.tos >> 2,
			ECN:           wire.ECN(d.tos & 3),
			TotalLength:   uint16(header + len(payload)),
			ID:            7,
			TTL:           d.ttl,
			Protocol:      d.protocol,
			Src:           d.src.As4(),
			Dst:           d.dst.As4(),
			DontFragment:  d.dontFragment,
			Offset:        d.offset,
			MoreFragments: d.more,
		})
	} else {
		wire.IPv6(one.Data[wire.EthernetLen:]).Encode(&wire.IPv6Fields{
			DSCP:          d.tos >> 2,
			ECN:           wire.ECN(d.tos & 3),
			PayloadLength: uint16(len(payload)),
			NextHeader:    d.protocol,
			HopLimit:      d.ttl,
			Src:           d.src.As16(), Dst: d.dst.As16(), FlowLabel: d.flowLabel,
		})
	}
	one.Length = len(one.Data)
	one.Flow, one.Ordinal = d.flow, d.ordinal
	one.Parse()
	return one
}

// sum is the one's complement sum of RFC 1071, section 4.1, word by word.
func sum(pieces ...[]byte) uint16 {
	total := uint32(0)
	for _, b := range pieces {
		for i, octet := range b {
			if i%2 == 0 {
				total += uint32(octet) << 8
			} else {
				total += uint32(octet)
			}
		}
	}
	for total>>16 != 0 {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// wellFormed requires a frame whose headers are right and read as they stand,
// with right checksums of IPv4, ICMP and ICMPv6.
func wellFormed(t testing.TB, what string, one *packet.Packet) {
	t.Helper()
	h := wire.Parse(one.Data)
	if h != one.Headers {
		t.Errorf("%s: headers are\n%+v, the packet says\n%+v", what, h, one.Headers)
	}
	if !h.Verdict.Routable() {
		t.Errorf("%s: the frame is %s: % x", what, h.Verdict, one.Data)
		return
	}
	if one.Length < len(one.Data) {
		t.Errorf("%s: length %d, but %d bytes", what, one.Length, len(one.Data))
	}
	if h.Has(wire.IsIPv4) {
		if got := sum(one.Data[h.L3:h.L4]); got != 0xffff {
			t.Errorf("%s: the IPv4 header sums to %#04x", what, got)
		}
	}
}

// rightChecksum requires an ICMP message or a TCP segment of ours to have its
// checksum.
func rightChecksum(t testing.TB, what string, one *packet.Packet) {
	t.Helper()
	h := &one.Headers
	message := one.Data[h.L4:h.End]
	var got uint16
	switch {
	case h.Has(wire.IsIPv4) && h.Protocol == wire.ProtocolICMPv4:
		got = sum(message)
	case h.Has(wire.IsIPv4) && h.Protocol == wire.ProtocolTCP:
		got = sum(h.Src[12:], h.Dst[12:], []byte{0, 6, 0, byte(len(message))}, message)
	case h.Has(wire.IsIPv6):
		length := len(message)
		got = sum(h.Src[:], h.Dst[:], []byte{0, 0, byte(length >> 8), byte(length), 0, 0, 0, h.Protocol},
			message)
	default:
		return
	}
	if got != 0xffff {
		t.Errorf("%s: the ICMP message sums to %#04x", what, got)
	}
}

// fabric is all switches of a plan with their tables, and its wires.
type fabric struct {
	t      testing.TB
	plan   *plan.Plan
	pool   *packet.Pool
	tables map[string]Table
	far    map[plan.End]plan.End
	owner  map[netip.Addr]string
	now    clock.Time
}

func newFabric(t testing.TB, p *plan.Plan, balance string) *fabric {
	f := &fabric{t: t, plan: p, pool: newPool(t), tables: map[string]Table{}, far: map[plan.End]plan.End{},
		owner: map[netip.Addr]string{}}
	for _, l := range p.Links {
		f.far[l.A], f.far[l.B] = l.B, l.A
	}
	own := func(name string, loopbacks []netip.Prefix, interfaces []plan.Interface) {
		for _, a := range loopbacks {
			f.owner[a.Addr()] = name
		}
		for _, i := range interfaces {
			for _, a := range i.Addrs {
				f.owner[a.Addr()] = name
			}
		}
	}
	for i := range p.Nodes {
		own(p.Nodes[i].Name, p.Nodes[i].Loopbacks, p.Nodes[i].NICs)
	}
	for i := range p.Switches {
		sw := &p.Switches[i]
		own(sw.Name, sw.Loopbacks, sw.Ports)
		f.tables[sw.Name] = table(t, p, sw.Name, balance, f.pool, depths{})
	}
	return f
}

func (f *fabric) port(e plan.End) int {
	for i, port := range f.plan.Switch(e.Node).Ports {
		if port.Name == e.Port {
			return i
		}
	}
	f.t.Fatalf("no port %v", e)
	return -1
}

// from is a datagram as it leaves a NIC: to the switch, from the NIC's MAC.
func (f *fabric) from(node *plan.Node, nic int, d datagram) (datagram, plan.End) {
	e := f.far[plan.End{Node: node.Name, Port: node.NICs[nic].Name}]
	d.srcMAC, d.dstMAC = node.NICs[nic].MAC, f.plan.Switch(e.Node).Ports[f.port(e)].MAC
	return d, e
}

// carry sends a packet through the fabric until it reaches a node or ends, and
// returns where it ends and the switches that it crossed. A reply goes on as a
// packet of its own.
func (f *fabric) carry(one *packet.Packet, at plan.End) (end plan.End, path []string, last Decision) {
	f.t.Helper()
	for range 100 {
		if f.plan.Switch(at.Node) == nil {
			return at, path, last
		}
		path = append(path, at.Node)
		d := f.tables[at.Node].Decide(f.now, one, f.port(at))
		switch d.Action {
		case Reply:
			f.pool.Put(one)
			one, last = d.Reply, d
			wellFormed(f.t, "reply", one)
			rightChecksum(f.t, "reply", one)
		case Send:
			if last.Action != Reply {
				last = d
			}
			wellFormed(f.t, "forwarded", one)
		default:
			f.pool.Put(one)
			return plan.End{}, path, d
		}
		last.Reply = one
		at = f.far[plan.End{Node: at.Node, Port: f.plan.Switch(at.Node).Ports[d.Port].Name}]
	}
	f.t.Fatal("a packet goes round in circles")
	return
}
