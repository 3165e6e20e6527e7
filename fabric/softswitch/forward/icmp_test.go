package forward

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

var (
	macA = plan.MAC{2, 0, 0, 0, 0, 1}
	macS = plan.MAC{2, 0, 0, 0, 0, 3}
	addr = netip.MustParseAddr
)

// fromA is a datagram from a to s.
func fromA(src, dst string) datagram {
	return datagram{src: addr(src), dst: addr(dst), srcMAC: macA, dstMAC: macS, srcPort: 1000, dstPort: 2000,
		payload: make([]byte, 100)}
}

func (d datagram) with(change func(*datagram)) datagram {
	change(&d)
	return d
}

// complaint is a packet from a, whether an error about it is sent, and why it is
// dropped.
type complaint struct {
	name   string
	d      datagram
	reply  bool
	reason Reason
}

// complaints are all packets about which RFC 1812, 4.3.2.7, and RFC 4443, 2.4(e),
// allow no error, beside ones about which an error is due.
func complaints() []complaint {
	const v4, v6 = "10.0.0.1", "fd00:a1::1"
	expiring := func(d *datagram) { d.ttl = 1 }
	icmp := func(kind uint8) func(*datagram) {
		return func(d *datagram) {
			d.ttl, d.protocol = 1, wire.ProtocolICMPv4
			if d.dst.Is6() {
				d.protocol = wire.ProtocolICMPv6
			}
			d.payload = make([]byte, 40)
			d.payload[0] = kind
		}
	}
	later := func(d *datagram) { d.ttl, d.offset, d.more = 1, 8, true }
	later6 := func(d *datagram) { // a fragment header: UDP, offset 8, more
		d.ttl, d.protocol, d.payload = 1, wire.ProtocolFragment,
			append([]byte{17, 0, 0, 9, 0, 0, 0, 1}, make([]byte, 40)...)
	}
	sctp := func(d *datagram) { d.protocol = 132 }
	wrong := func(d *datagram) { d.badChecksum = true }
	first := func(d *datagram) { d.ttl, d.more = 1, true }
	station := func(mac plan.MAC) func(*datagram) {
		return func(d *datagram) { d.ttl, d.dstMAC = 1, mac }
	}
	hidden := func(d *datagram) { // nine extension headers, and an error behind them
		d.ttl, d.protocol = 1, wire.ProtocolDestination
		for i := range 9 {
			next := byte(wire.ProtocolDestination)
			if i == 8 {
				next = wire.ProtocolICMPv6
			}
			d.payload = append(d.payload, next, 0, 1, 4, 0, 0, 0, 0)
		}
		d.payload = append(d.payload[100:], make([]byte, 16)...)
	}
	return []complaint{
		{"UDP", fromA(v4, "10.0.0.3").with(expiring), true, TTLExceeded},
		{"UDP over IPv6", fromA(v6, "fd00:a1::3").with(expiring), true, TTLExceeded},
		{"echo request", fromA(v4, "10.0.0.3").with(icmp(8)), true, TTLExceeded},
		{"echo reply", fromA(v4, "10.0.0.3").with(icmp(0)), true, TTLExceeded},
		{"timestamp", fromA(v4, "10.0.0.3").with(icmp(13)), true, TTLExceeded},
		{"unreachable", fromA(v4, "10.0.0.3").with(icmp(3)), false, TTLExceeded},
		{"source quench", fromA(v4, "10.0.0.3").with(icmp(4)), false, TTLExceeded},
		{"redirect", fromA(v4, "10.0.0.3").with(icmp(5)), false, TTLExceeded},
		{"time exceeded", fromA(v4, "10.0.0.3").with(icmp(11)), false, TTLExceeded},
		{"parameter problem", fromA(v4, "10.0.0.3").with(icmp(12)), false, TTLExceeded},
		{"ICMP cut short", fromA(v4, "10.0.0.3").with(func(d *datagram) {
			d.ttl, d.protocol, d.payload = 1, 1, []byte{8}
		}), false, TTLExceeded},
		{"ICMPv6 echo", fromA(v6, "fd00:a1::3").with(icmp(128)), true, TTLExceeded},
		{"ICMPv6 errors", fromA(v6, "fd00:a1::3").with(icmp(1)), false, TTLExceeded},
		{"ICMPv6 errors to come", fromA(v6, "fd00:a1::3").with(icmp(127)), false, TTLExceeded},
		{"ICMPv6 redirect", fromA(v6, "fd00:a1::3").with(icmp(137)), false, TTLExceeded},
		{"an error behind extensions", fromA(v6, "fd00:a1::3").with(hidden), false, TTLExceeded},
		{"first fragment", fromA(v4, "10.0.0.3").with(first), true, TTLExceeded},
		{"later fragment", fromA(v4, "10.0.0.3").with(later), false, TTLExceeded},
		{"later fragment of IPv6", fromA(v6, "fd00:a1::3").with(later6), false, TTLExceeded},
		{"by broadcast of the link", fromA(v4,
			"10.0.0.3").with(station(plan.MAC{255, 255, 255, 255, 255, 255})), false, NotForUs},
		{"by multicast of the link", fromA(v6, "fd00:a1::3").with(station(plan.MAC{0x33, 0x33, 0, 0, 0, 1})),
			false, NotForUs},
		{"for another station", fromA(v4, "10.0.0.3").with(station(plan.MAC{2, 0, 0, 0, 0, 99})), false,
			NotForUs},
		{"to multicast", fromA(v4, "239.1.1.1").with(expiring), false, NotForUs},
		{"to multicast of the link", fromA(v4, "224.0.0.1").with(expiring), false, Consumed},
		{"to broadcast", fromA(v4, "255.255.255.255").with(expiring), false, Consumed},
		{"to IPv6 multicast", fromA(v6, "ff0e::1").with(expiring), false, NotForUs},
		{"to IPv6 multicast of the link", fromA(v6, "ff02::1").with(expiring), false, Consumed},
		{"to class E", fromA(v4, "240.0.0.1").with(expiring), true, NoRoute},
		{"to loopback", fromA(v4, "127.0.0.1"), false, Martian},
		{"to nobody", fromA(v4, "0.0.0.0"), false, Martian},
		{"from nobody", fromA("0.0.0.0", "10.0.0.3").with(expiring), false, Martian},
		{"from broadcast", fromA("255.255.255.255", "10.0.0.3").with(expiring), false, Martian},
		{"from multicast", fromA("224.1.1.1", "10.0.0.3").with(expiring), false, Martian},
		{"from class E", fromA("250.1.1.1", "10.0.0.3").with(expiring), false, Martian},
		{"from loopback", fromA("127.0.0.1", "10.0.0.3").with(expiring), false, Martian},
		{"from IPv6 multicast", fromA("ff02::1", "fd00:a1::3").with(expiring), false, Martian},
		{"from IPv6 loopback", fromA("::1", "fd00:a1::3").with(expiring), false, Martian},
		{"from IPv6 nobody", fromA("::", "fd00:a1::3").with(expiring), false, Martian},
		{"to IPv6 loopback", fromA(v6, "::1"), false, Martian},
		{"from a link-local address", fromA("fe80::1", "fd00:a1::3").with(expiring), false, Consumed},
		{"to a link-local address", fromA(v6, "fe80::1"), false, Consumed},
		{"SCTP for the switch", fromA(v4, "10.0.0.5").with(sctp), true, Consumed},
		{"SCTP for the switch over IPv6", fromA(v6, "fd00:a1::5").with(sctp), true, Consumed},
		{"UDP for the switch, with no checksum", fromA(v4, "10.0.0.5"), true, Consumed},
		{"UDP for the switch over IPv6, with no checksum", fromA(v6, "fd00:a1::5"), false, Malformed},
		{"UDP for the switch, with a wrong checksum", fromA(v4, "10.0.0.5").with(wrong), false, Malformed},
		{"UDP for a port of the switch", fromA(v4, "10.128.0.5"), true, Consumed},
		{"from where no route leads", fromA("192.0.2.1", "10.0.0.3").with(expiring), false, TTLExceeded},
		{"from the router itself", fromA("10.0.0.5", "10.0.0.3").with(expiring), false, TTLExceeded},
	}
}

func TestNoErrorAbout(t *testing.T) {
	for _, c := range complaints() {
		s, pool := answering(t)
		one := c.d.packet(pool)
		d := s.Decide(0, one, 0)
		if (d.Action == Reply) != c.reply || (d.Action != Reply && d.Action != Drop) || d.Reason != c.reason {
			t.Errorf("%s: action %d for %s, want a reply %t for %s", c.name, d.Action, d.Reason, c.reply,
				c.reason)
		}
		if d.Reply != nil {
			wellFormed(t, c.name, d.Reply)
			rightChecksum(t, c.name, d.Reply)
			pool.Put(d.Reply)
		}
		if pool.Put(one); pool.Used() != 0 {
			t.Errorf("%s: %d packets are left", c.name, pool.Used())
		}
	}
}

// TestErrorsAreLimited: so many at once, then so many in a second.
func TestErrorsAreLimited(t *testing.T) {
	s, pool := answering(t)
	ask := func(now clock.Time) bool {
		one := fromA("10.0.0.1", "10.0.0.3").with(func(d *datagram) { d.ttl = 1 }).packet(pool)
		defer pool.Put(one)
		d := s.Decide(now, one, 0)
		if d.Action == Reply {
			pool.Put(d.Reply)
		}
		return d.Action == Reply
	}
	answered := 0
	for range errorsAtOnce + 1000 {
		if ask(0) {
			answered++
		}
	}
	if answered != errorsAtOnce {
		t.Errorf("%d answers at once, want %d", answered, errorsAtOnce)
	}
	answered = 0
	for i := range 300_000 { // 1 s, 300,000 askers
		if ask(clock.Time(i+1) * 1e9 / 300_000) {
			answered++
		}
	}
	if answered != errorsPerSecond {
		t.Errorf("%d answers in a second, want %d", answered, errorsPerSecond)
	}
	if !ask(clock.Time(time.Hour)) {
		t.Error("no answer after an hour of silence")
	}
}

// TestQuotes: an error has as much of the packet as fits into 576 bytes (RFC
// 1812) and 1,280 (RFC 4443), and no more than there is.
func TestQuotes(t *testing.T) {
	for _, c := range []struct {
		src, dst      string
		payload, want int
	}{
		{"10.0.0.1", "10.0.0.3", 0, 14 + 20 + 8 + 28}, {"10.0.0.1", "10.0.0.3", 520, 14 + 576},
		{"10.0.0.1", "10.0.0.3", 521, 14 + 576},
		{"10.0.0.1", "10.0.0.3", 1400, 14 + 576},
		{"fd00:a1::1", "fd00:a1::3", 0, 14 + 40 + 8 + 48}, {"fd00:a1::1", "fd00:a1::3", 1184, 14 + 1280},
		{"fd00:a1::1", "fd00:a1::3", 1400, 14 + 1280},
	} {
		s, pool := answering(t)
		d := fromA(c.src, c.dst)
		d.ttl, d.payload = 1, make([]byte, c.payload)
		got := s.Decide(0, d.packet(pool), 0)
		if got.Action != Reply || len(got.Reply.Data) != c.want {
			t.Errorf("about %d bytes: %+v, want a reply of %d bytes", c.payload, got, c.want)
		}
	}
}

// TestTooBig sends packets that are too long for their egress: the sender gets an error with the
// MTU.
func TestTooBig(t *testing.T) {
	p := wired(t, "a b", "s t", "a -- s", "b -- t", "s -- t")
	p.Switches[0].Ports[1].MTU = 1400
	pool := newPool(t)
	s := table(t, p, "s", "", pool, depths{})
	for _, c := range []struct {
		src, dst string
		length   int // of the IP packet
		fits     bool
	}{
		{"10.0.0.1", "10.0.0.3", 1400, true}, {"10.0.0.1", "10.0.0.3", 1401, false},
		{"fd00:a1::1", "fd00:a1::3", 1400, true}, {"fd00:a1::1", "fd00:a1::3", 1401, false},
	} {
		d := fromA(c.src, c.dst)
		d.dontFragment = true
		header := 28
		if d.dst.Is6() {
			header = 48
		}
		d.payload = make([]byte, c.length-header)
		got := s.Decide(0, d.packet(pool), 0)
		if c.fits {
			if got.Action != Send || got.Port != 1 {
				t.Errorf("%s with %d bytes: %+v, want it sent", c.dst, c.length, got)
			}
			continue
		}
		if got.Action != Reply || got.Reason != TooBig {
			t.Fatalf("%s with %d bytes: %+v, want a reply", c.dst, c.length, got)
		}
		message := got.Reply.Data[got.Reply.Headers.L4:]
		kind, code, mtu := message[0], message[1], binary.BigEndian.Uint32(message[4:])
		if d.dst.Is4() && (kind != 3 || code != 4) || d.dst.Is6() && (kind != 2 || code != 0) || mtu != 1400 {
			t.Errorf("type %d, code %d, MTU %d", kind, code, mtu)
		}
		rightChecksum(t, "too big", got.Reply)
	}
}

// TestAnswerTooBig: an echo that came by a link that would not carry its reply.
func TestAnswerTooBig(t *testing.T) {
	p := wired(t, "a b", "s t", "a -- s", "b -- t", "s -- t")
	p.Switches[0].Ports[0].MTU = 1300
	pool := newPool(t)
	s := table(t, p, "s", "", pool, depths{})
	d := fromA("10.0.0.1", "10.0.0.5")
	d.protocol, d.payload = wire.ProtocolICMPv4, make([]byte, 1281)
	wire.ICMPv4(d.payload).Encode(&wire.ICMPFields{Type: wire.ICMPv4Echo})
	one := d.packet(pool)
	if got := s.Decide(0, one, 0); got.Action != Drop || got.Reason != TooBig || pool.Used() != 1 {
		t.Errorf("%+v, and %d packets in use, want 1", got, pool.Used())
	}
	d.payload = d.payload[:1280]
	wire.ICMPv4(d.payload).FillChecksum()
	if got := s.Decide(0, d.packet(pool), 0); got.Action != Reply {
		t.Errorf("one that fits: %+v", got)
	}
}

// TestPaddingStaysOnItsLink sends a short packet with so much behind it that the
// next link would not carry it.
func TestPaddingStaysOnItsLink(t *testing.T) {
	s, pool := answering(t)
	for padding, want := range map[int]int{0: 46, 10: 56, 14: 60, 15: 60, 4000: 60} {
		d := fromA("10.0.0.1", "10.0.0.3")
		d.payload = make([]byte, 4)
		one := d.packet(pool)
		length := len(one.Data)
		one.Data = one.Data[:length+padding]
		one.Length = len(one.Data)
		one.Parse()
		if got := s.Decide(0, one, 0); got.Action != Send || len(one.Data) != want || one.Length != want {
			t.Errorf("46 bytes and %d of padding leave with %d bytes and a length of %d, want %d", padding,
				len(one.Data), one.Length, want)
		}
		wellFormed(t, "padded", one)
	}
}

// TestTags: a tag without a VLAN is passed on as it is, with one it is dropped.
func TestTags(t *testing.T) {
	s, pool := answering(t)
	tagged := func(tags ...byte) *packet.Packet {
		plain := fromA("10.0.0.1", "10.0.0.3").packet(pool)
		frame := append(append(append([]byte{}, plain.Data[:12]...), tags...), plain.Data[12:]...)
		return put(pool, frame)
	}
	one := tagged(0x81, 0, 0xa0, 0)
	if got := s.Decide(0, one, 0); got.Action != Send || one.Data[12] != 0x81 || one.Data[14] != 0xa0 {
		t.Errorf("a priority tag: %+v, % x", got, one.Data[:20])
	}
	wellFormed(t, "tagged", one)
	for _, tags := range [][]byte{{0x81, 0, 0xa0, 5}, {0x88, 0xa8, 0, 0, 0x81, 0, 0, 0}} {
		if got := s.Decide(0, tagged(tags...), 0); got.Action != Drop || got.Reason != Unsupported {
			t.Errorf("% x: %+v", tags, got)
		}
	}
	expiring := tagged(0x81, 0, 0xa0, 0)
	wire.IPv4(expiring.Data[18:]).Encode(&wire.IPv4Fields{TotalLength: 128, TTL: 1, Protocol: 17,
		Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 3}})
	expiring.Parse()
	got := s.Decide(0, expiring, 0)
	if got.Action != Reply {
		t.Fatalf("%+v", got)
	}
	if quoted := got.Reply.Data[42]; quoted != 0x45 || got.Reply.Headers.Has(wire.Tagged) {
		t.Errorf("the error quotes %#x first, want the IP header", quoted)
	}
}

func TestRefused(t *testing.T) {
	const v4 = "0200 0000 0003 0200 0000 0001 0800 "
	for name, c := range map[string]struct {
		frame string
		want  Reason
	}{
		"nothing":                     {"", Malformed},
		"half an Ethernet header":     {"0200 0000 0003 02", Malformed},
		"no IP header":                {v4, Malformed},
		"version 6 in IPv4":           {v4 + "6500 0014 0007 0000 4011 0000 0a00 0001 0a00 0003", Malformed},
		"a wrong checksum":            {v4 + "4500 0014 0007 0000 4011 0000 0a00 0001 0a00 0003", Malformed},
		"longer than the frame":       {v4 + "4500 0015 0007 0000 4011 66ce 0a00 0001 0a00 0003", Malformed},
		"LLDP":                        {"0180 c200 000e 0200 0000 0001 88cc 0000", Unsupported},
		"a length in place of a type": {"0200 0000 0003 0200 0000 0001 0026 4242 0300", Unsupported},
		"ARP for another": {"ffff ffff ffff 0200 0000 0001 0806 0001 0800 0604 0001 0200 0000 " +
			"0001 0a80 0001 0000 0000 0000 0a80 0077", Consumed},
		"an ARP reply": {"0200 0000 0003 0200 0000 0001 0806 0001 0800 0604 0002 0200 0000 " +
			"0001 0a80 0001 0200 0000 0003 0a80 0000", Consumed},
		"ARP cut short": {"ffff ffff ffff 0200 0000 0001 0806 0001 0800 0604 0001 0200 0000 " +
			"0001 0a80 0001", Malformed},
		"ARP from a group": {"ffff ffff ffff 0200 0000 0001 0806 0001 0800 0604 0001 0300 0000 " +
			"0001 0a80 0001 0000 0000 0000 0a80 0000", Consumed},
		"TCP with a wrong checksum": {v4 +
			"4500 0028 0007 0000 4006 66c4 0a00 0001 0a00 0005 0001 0002 0000 0000 0000 0000 5002 0000 " +
			"0000 0000", Malformed},
		"a reset": {v4 +
			"4500 0028 0007 0000 4006 66c4 0a00 0001 0a00 0005 0001 0002 0000 0000 0000 0000 5004 0000 " +
			"9bd8 0000", Consumed},
		"an echo with a wrong sum": {v4 +
			"4500 001c 0007 0000 4001 66d5 0a00 0001 0a00 0005 0800 0000 0001 0001", Malformed},
		"a solicitation from afar": {"3333 ff00 0000 0200 0000 0001 86dd 6000 0000 0020 3afe fd00 00a2 " +
			"0000 0000 0000 0000 0000 0001 ff02 0000 0000 0000 0000 0001 ff00 0000 8700 7c57 0000 0000 " +
			"fd00 00a2 0000 0000 0000 0000 0000 0000 0101 0200 0000 0001", Malformed},
	} {
		s, pool := answering(t)
		if got := s.Decide(0, put(pool, octets(t, c.frame)), 0); got.Action != Drop || got.Reason != c.want {
			t.Errorf("%s: action %d for %s, want it dropped for %s", name, got.Action, got.Reason, c.want)
		}
	}
}

// TestNoMemory: a switch whose packet memory is used up drops, and answers
// nothing.
func TestNoMemory(t *testing.T) {
	p := wired(t, "a b", "s t", "a -- s", "b -- t", "s -- t")
	pool, err := packet.NewPool(2048, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := table(t, p, "s", "", pool, depths{})
	one := fromA("10.0.0.1", "10.0.0.3").with(func(d *datagram) { d.ttl = 1 }).packet(pool)
	if got := s.Decide(0, one, 0); got.Action != Drop || got.Reason != TTLExceeded {
		t.Errorf("%+v", got)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	seen := map[string]bool{"": true, "unknown": true}
	for r := range reasons {
		if seen[r.String()] {
			t.Errorf("reason %d is named %q", r, r)
		}
		seen[r.String()] = true
	}
}
