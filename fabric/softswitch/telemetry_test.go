package softswitch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// allInstructions are all instructions that the soft switch supports.
const allInstructions = wire.INTStandard | wire.INTHopLatency | wire.INTIngressTime | wire.INTBuffer

// probe is an INT probe from a node to a node, with its UDP checksum; change may
// spoil its block before that.
func (r *rig) probe(at clock.Time, f flow, fields wire.INTFields, change func(wire.INT)) {
	one := r.engine.Pool().Get()
	const udp = wire.EthernetLen + wire.IPv4MinLen
	fields.NextPort, fields.Discard = wire.PortINT, true
	block := wire.INTBlockLen(&fields)
	one.Data = r.frame(one.Data, f, udp+wire.UDPLen+block+wire.INTProbeLen)
	wire.INT(one.Data[udp+wire.UDPLen:]).Encode(&fields)
	wire.INTProbe(one.Data[udp+wire.UDPLen+block:]).Encode(7, 0)
	if change != nil {
		change(wire.INT(one.Data[udp+wire.UDPLen:]))
	}
	datagram := wire.UDP(one.Data[udp:])
	datagram.SetDstPort(wire.PortINT)
	datagram.FillChecksum(wire.PseudoIPv4(address(&r.plan.Nodes[f.from]).As4(),
		address(&r.plan.Nodes[f.to]).As4(), wire.ProtocolUDP, len(datagram)))
	r.engine.Receive(f.from, one, at)
}

// probes takes the blocks of probes that nodes get, and checks their checksums.
func (r *rig) probes() *[]wire.INT {
	var got []wire.INT
	r.engine.options.Deliver = func(_ int, one *packet.Packet) {
		if h := &one.Headers; h.DstPort == wire.PortINT {
			got = append(got, slices.Clone(wire.INT(one.Data[h.Payload:])))
			datagram := wire.UDP(one.Data[h.L4:])
			if !datagram.ChecksumValid(wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]),
				wire.ProtocolUDP, len(datagram))) {
				r.t.Errorf("the checksum is wrong")
			}
		}
		r.engine.Pool().Put(one)
	}
	return &got
}

// portTo is the number of a switch's port by its far end.
func (r *rig) portTo(sw, far string) uint16 {
	r.t.Helper()
	at := slices.IndexFunc(r.plan.Switch(sw).Ports, func(i plan.Interface) bool { return peerOf(i) == far })
	if at < 0 {
		r.t.Fatalf("%s has no port to %s", sw, far)
	}
	return uint16(at)
}

// threeHops has host links of 1 Gbit/s and fabric links of 2 Gbit/s, all with 5
// us: a frame of 1,000 bytes takes 8 and 4 us.
const threeHops = `
name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 2}
  switch: {kind: soft, int: %v}
  links: {default: {rate: 1gbit, delay: 5us}, "leaf*--spine*": {rate: 2gbit}}
`

// TestTelemetry compares two probes over three switches with the model.
//
// In us: h1 sends frames of 8 us from 0 on, without a gap. Frame k enters leaf1 at 13+8k and keeps
// the line to the spine until 17+8k. It enters the spine at 22+8k, keeps its line until 26+8k, and
// enters leaf2 at 31+8k. h3 sends 8 frames, which enter leaf2 from 13 on and keep the line to h2
// busy, so that a queue stands there from 31 on.
//
// A probe has 194 bytes, 1.552 us and 0.776 us. The probes sent at 55 and 167 enter leaf1 at 61.552
// and 173.552, and wait for h1's frames 6 and 20 until 65 and 177. They enter the spine at 70.776
// and 182.776, and wait for these frames until 74 and 186. They enter leaf2 at 79.776 and 191.776.
//
// There the first probe waits for 8 frames of h3 and 7 of h1, until 13+15*8 = 133, when 6 more have
// arrived. The second probe waits for 29 frames, those of h3 and h1, and for the first probe. It
// waits until 13+29*8+1.552 = 246.552, when 6 more have arrived.
func TestTelemetry(t *testing.T) {
	r := newRig(t, fmt.Sprintf(threeHops, true))
	got := r.probes()
	for k := range 60 {
		r.send(clock.Time(k)*8000, flow{from: 1, to: 2}, 1000)
	}
	for k := range 8 {
		r.send(clock.Time(k)*8000, flow{from: 3, to: 2}, 1000)
	}
	fields := wire.INTFields{Hops: 3, Instructions: allInstructions}
	r.probe(55_000, flow{from: 0, to: 2}, fields, nil)
	r.probe(167_000, flow{from: 0, to: 2}, fields, nil)
	r.drain(time.Second)
	r.balance()

	leaf1In, leaf1Out := r.portTo("leaf1", "h0"), r.portTo("leaf1", "spine1")
	spineIn, spineOut := r.portTo("spine1", "leaf1"), r.portTo("spine1", "leaf2")
	leaf2In, leaf2Out := r.portTo("leaf2", "spine1"), r.portTo("leaf2", "h2")
	id := func(sw string) uint32 { return r.plan.Switch(sw).ID }
	hop := func(sw string, in, out uint16, from, to uint64, depth, use uint32) wire.INTHop {
		return wire.INTHop{
			Known:       allInstructions,
			Node:        id(sw),
			Ingress:     in,
			Egress:      out,
			Latency:     to - from,
			IngressTime: from,
			EgressTime:  to,
			QueueBytes:  depth, BufferBytes: depth, Utilisation: use,
		}
	}
	// No window is over before 100 us. Then leaf1's line was busy with 11 frames
	// of h1 and the first probe, the spine's with 10 and it, and leaf2's since
	// the first frame of h3.
	want := [][]wire.INTHop{{
		hop("leaf1", leaf1In, leaf1Out, 61_552, 65_000, 0, 0),
		hop("spine1", spineIn, spineOut, 70_776, 74_000, 0, 0),
		hop("leaf2", leaf2In, leaf2Out, 79_776, 133_000, 6000, 870_000),
	}, {
		hop("leaf1", leaf1In, leaf1Out, 173_552, 177_000, 0, 447_760),
		hop("spine1", spineIn, spineOut, 182_776, 186_000, 0, 407_760),
		hop("leaf2", leaf2In, leaf2Out, 191_776, 246_552, 6000, 1_000_000),
	}}
	if len(*got) != len(want) {
		t.Fatalf("%d probes arrived, want %d", len(*got), len(want))
	}
	for i, block := range *got {
		if !block.Valid() || block.Hops() != 3 || block.HopsExceeded() || block.MTUExceeded() {
			t.Fatalf("probe %d: % x", i, []byte(block))
		}
		for n := range want[i] {
			if hop := block.Hop(n); hop != want[i][n] {
				t.Errorf("probe %d, hop %d:\n got %+v\nwant %+v", i, n, hop, want[i][n])
			}
		}
		if probe := wire.INTProbe(block.Payload()); !probe.Valid() || probe.Seq() != 7 {
			t.Errorf("probe %d: its payload changed: % x", i, []byte(probe))
		}
	}
	if c := r.telemetryCounts(); c != (INTCounters{Written: 6}) {
		t.Errorf("%+v, want 6 hops written", c)
	}
}

// telemetryCounts returns the telemetry counters of all ports together.
func (r *rig) telemetryCounts() (total INTCounters) {
	for _, p := range r.engine.Ports() {
		total.Add(&p.Counters.INT)
	}
	return total
}

// TestTelemetryErrors has every row of PROTOCOL.md, section 2.5, over three
// switches: each forwards the packet.
func TestTelemetryErrors(t *testing.T) {
	standard := wire.INTFields{Hops: 3}
	spoil := func(at int, to byte) func(wire.INT) { return func(b wire.INT) { b[at] = to } }
	for _, c := range []struct {
		name   string
		fields wire.INTFields
		change func(wire.INT)
		want   INTCounters
		same   bool // no byte changed
	}{
		{"well", standard, nil, INTCounters{Written: 3}, false},
		{"room for two", wire.INTFields{Hops: 2}, nil, INTCounters{Written: 2, Full: 1}, false},
		{"room for none", wire.INTFields{Hops: 0}, nil, INTCounters{Full: 3}, false},
		{"another type", standard, spoil(0, 0x24), INTCounters{Invalid: 3}, true},
		{"another version", standard, spoil(4, 0x10), INTCounters{Invalid: 3}, true},
		{"longer than the datagram", standard, spoil(1, 200), INTCounters{Invalid: 3}, true},
		{"remaining beyond the room", standard, spoil(7, 4), INTCounters{Invalid: 3}, true},
		{"hops of no words", standard, spoil(6, 0), INTCounters{Invalid: 3}, true},
		{"another domain", standard, spoil(11, 0x43), INTCounters{NoRoom: 3}, false},
	} {
		r := newRig(t, fmt.Sprintf(threeHops, true))
		got := r.probes()
		var sent wire.INT
		r.probe(0, flow{from: 0, to: 2}, c.fields, func(b wire.INT) {
			if c.change != nil {
				c.change(b)
			}
			sent = slices.Clone(b)
		})
		r.drain(time.Second)
		if len(*got) != 1 {
			t.Fatalf("%s: it did not arrive", c.name)
		}
		if counts := r.telemetryCounts(); counts != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, counts, c.want)
		}
		block := (*got)[0]
		if same := slices.Equal(sent, block); same != c.same {
			t.Errorf("%s: unchanged is %v, want %v: % x", c.name, same, c.same, []byte(block))
		}
		if block.HopsExceeded() != (c.want.Full > 0) || block.MTUExceeded() != (c.want.NoRoom > 0) {
			t.Errorf("%s: E is %v and M is %v", c.name, block.HopsExceeded(), block.MTUExceeded())
		}
	}
}

// TestTelemetryOff: a switch without telemetry in the plan does not change blocks.
func TestTelemetryOff(t *testing.T) {
	r := newRig(t, fmt.Sprintf(threeHops, false))
	got := r.probes()
	r.probe(0, flow{from: 0, to: 2}, wire.INTFields{Hops: 3}, nil)
	r.drain(time.Second)
	if len(*got) != 1 || (*got)[0].Hops() != 0 || r.telemetryCounts() != (INTCounters{}) {
		t.Fatalf("%d probes, counts %+v", len(*got), r.telemetryCounts())
	}
}

// TestTelemetryLeavesOthersAlone: reliable datagrams without a block, fragments and trimmed packets
// are neither changed nor counted.
func TestTelemetryLeavesOthersAlone(t *testing.T) {
	r := newRig(t, fmt.Sprintf(threeHops, true))
	for i, change := range []func(frame []byte){
		func(f []byte) { wire.UDP(f[34:]).SetDstPort(wire.PortRD); f[42] = 0x40 },
		func(f []byte) { wire.UDP(f[34:]).SetDstPort(wire.PortRD); wire.UDP(f[34:]).SetLength(8) },
		func(f []byte) { // a first fragment
			wire.UDP(f[34:]).SetDstPort(wire.PortINT)
			ip := wire.IPv4(f[14:])
			ip[6] = 0x20
			ip.FillChecksum()
		},
	} {
		one := r.engine.Pool().Get()
		one.Data = r.frame(one.Data, flow{from: 0, to: 2}, 200)
		change(one.Data)
		r.engine.Receive(0, one, clock.Time(i)*100_000)
	}
	r.drain(time.Second)
	if r.count != 3 || r.telemetryCounts() != (INTCounters{}) {
		t.Fatalf("%d of 3 arrived, counts %+v", r.count, r.telemetryCounts())
	}
}

// TestTelemetryLeavesTrimmedAlone: of a probe whose payload a full queue cut away
// the switch writes and counts nothing, wherever the cut was (PROTOCOL.md, section
// 2.5). The others are written once.
func TestTelemetryLeavesTrimmedAlone(t *testing.T) {
	for name, size := range map[string]int{"cut in the block": 64, "cut behind the block": 150} {
		r := newRig(t, single(3, fmt.Sprintf(`
  switch: {kind: soft, int: true, buffer: 100KB, alpha: 0.1, trim: {size: %dB, priorities: [0]}}
  links: {default: {rate: 1gbit, delay: 5us}, "h2--leaf1": {rate: 100mbit}}
`, size)))
		whole, cut, changed := uint64(0), uint64(0), 0
		r.engine.options.Deliver = func(_ int, one *packet.Packet) {
			if one.Trimmed {
				cut++
				if b := one.Data[one.Headers.Payload:]; b[7] != 3 { // hops that may still write
					changed++
				}
			} else {
				whole++
			}
			r.engine.Pool().Put(one)
		}
		for k := range 40 {
			for from := range 2 {
				one := r.engine.Pool().Get()
				one.Data = r.frame(one.Data, flow{from: from, to: 2}, 1000)
				wire.UDP(one.Data[34:]).SetDstPort(wire.PortRD)
				wire.INT(one.Data[42:]).Encode(&wire.INTFields{Hops: 3, NextPort: wire.PortRD})
				r.engine.Receive(from, one, clock.Time(k)*8000)
			}
		}
		r.drain(time.Second)
		r.balance()
		if c := r.telemetryCounts(); c != (INTCounters{Written: whole}) || whole == 0 || cut == 0 ||
			changed != 0 {
			t.Errorf("%s: %+v for %d whole packets and %d cut, %d of which were written to", name, c, whole,
				cut, changed)
		}
	}
}

// TestUse is the time that a line was busy in whole windows of 100 us.
func TestUse(t *testing.T) {
	var u use
	for _, c := range []struct {
		from, to, ask clock.Time
		want          uint32
	}{
		{10_000, 30_000, 99_999, 0},                // The last window is not over.
		{90_000, 100_000, 100_000, 300_000},        // Up to the end.
		{100_000, 101_000, 199_999, 300_000},       // Still of the first.
		{150_000, 420_000, 420_000, 1_000_000},     // Through two whole ones.
		{420_000, 421_000, 500_000, 210_000},       // 20 and 1.
		{900_000, 901_000, 999_999, 0},             // Nothing in the one before.
		{950_000, 1_050_000, 1_050_000, 510_000},   // 1 and 50.
		{1_050_000, 1_050_000, 1_100_000, 500_000}, // No time at all.
	} {
		u.add(c.from, c.to)
		if got := u.share(c.ask); got != c.want {
			t.Errorf("busy until %d: the share at %d is %d, want %d", c.to, c.ask, got, c.want)
		}
	}
}

// TestTelemetryDoesNotAllocate: a packet through three switches that write.
func TestTelemetryDoesNotAllocate(t *testing.T) {
	r := newRig(t, fmt.Sprintf(threeHops, true))
	r.silent = true
	at, fields := clock.Time(0), wire.INTFields{Hops: 3, Instructions: allInstructions}
	run := func() {
		r.probe(at, flow{from: 0, to: 2}, fields, nil)
		at += clock.Time(time.Millisecond)
		r.engine.Advance(at)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Fatalf("%v allocations for each packet", n)
	}
	if c := r.telemetryCounts(); c.Written != 3*r.count || r.count < 100 {
		t.Fatalf("%d arrived, %+v", r.count, c)
	}
}

// TestTelemetryInReliableDatagrams: a block that stands first in one is written
// like a probe's, and what follows it stays.
func TestTelemetryInReliableDatagrams(t *testing.T) {
	r := newRig(t, fmt.Sprintf(threeHops, true))
	var got []byte
	r.engine.options.Deliver = func(_ int, one *packet.Packet) {
		got = slices.Clone(one.Data[one.Headers.Payload:])
		r.engine.Pool().Put(one)
	}
	one := r.engine.Pool().Get()
	one.Data = r.frame(one.Data, flow{from: 0, to: 2}, 600)
	fields := wire.INTFields{Hops: plan.INTHops, NextPort: wire.PortRD}
	wire.UDP(one.Data[34:]).SetDstPort(wire.PortRD)
	wire.INT(one.Data[42:]).Encode(&fields)
	rest := one.Data[42+wire.INTBlockLen(&fields):]
	for i := range rest {
		rest[i] = 0x55
	}
	want := slices.Clone(rest)
	r.engine.Receive(0, one, 0)
	r.drain(time.Second)
	block := wire.INT(got)
	if !block.Valid() || block.Hops() != 3 || block.Hop(1).Node != r.plan.Switch("spine1").ID ||
		!slices.Equal(block.Payload(), want) {
		t.Fatalf("% x", got)
	}
}
