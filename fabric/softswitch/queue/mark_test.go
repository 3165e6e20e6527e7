package queue

import (
	"math"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

const (
	kmin = 40_000
	kmax = 160_000
)

// redPort is a port that marks by RED; all packets of a depth come to a queue of
// exactly that many bytes.
func redPort(t testing.TB, name string) func(depth int, one *packet.Packet) Outcome {
	sw := softSwitch(1<<30, 1)
	sw.Ports[0].Name = name
	sw.Soft.ECN = &plan.ECN{Kind: spec.RED, KMin: kmin, KMax: kmax, PMax: units.Ratio{Num: 1, Den: 5},
		Priorities: []int{0}}
	_, ports := memory(t, sw, nil)
	filler := &packet.Packet{Data: make([]byte, 1<<20)}
	return func(depth int, one *packet.Packet) Outcome {
		if depth > 0 {
			filler.Data = filler.Data[:depth]
			ports[0].Enqueue(0, filler)
		}
		o := ports[0].Enqueue(0, one)
		ports[0].Flush(func(*packet.Packet) {})
		if o.Depth != int64(depth) {
			t.Fatalf("the packet found %d bytes, want %d", o.Depth, depth)
		}
		return o
	}
}

// The share of packets that RED marks at length x is 0 up to kmin, pmax*(x-kmin)/(kmax-kmin) up to
// kmax, and 1 above. Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
// SIGCOMM 2015, figure 5. Of n independent packets, n*p +- 4*sqrt(n*p*(1-p)) are marked, except in
// one test of 16,000.
func TestShareThatREDMarks(t *testing.T) {
	offer := redPort(t, "p0")
	for _, depth := range []int{0, 1, kmin, kmin + 1, 46_000, 70_000, 100_000, 130_000, kmax - 1, kmax,
		kmax + 1, 500_000} {
		const flows, each = 40, 1000
		marked := 0
		for flow := range uint64(flows) {
			for ordinal := uint64(1); ordinal <= each; ordinal++ {
				one := frameOf(64, 0)
				one.Flow, one.Ordinal = flow, ordinal
				if offer(depth, one).Marked {
					marked++
				}
			}
		}
		p := 0.0
		switch {
		case depth > kmax:
			p = 1
		case depth > kmin:
			p = 0.2 * float64(depth-kmin) / (kmax - kmin)
		}
		const n = flows * each
		if off := math.Abs(float64(marked) - n*p); off > 4*math.Sqrt(n*p*(1-p)) {
			t.Errorf("%d bytes: %d of %d marked, want %.0f +- %.0f", depth, marked, n, n*p,
				4*math.Sqrt(n*p*(1-p)))
		}
	}
}

// What is marked depends on the flow and the ordinal alone, and each port draws
// for itself.
func TestREDDrawsAreOfThePacket(t *testing.T) {
	first, again, other := redPort(t, "p0"), redPort(t, "p0"), redPort(t, "p1")
	const n = 4000
	same, both, one, two := 0, 0, 0, 0
	for i := range uint64(n) {
		draw := func(offer func(int, *packet.Packet) Outcome, ordinal uint64) bool {
			p := frameOf(100, 0)
			p.Flow, p.Ordinal = 99, ordinal
			return offer(kmax, p).Marked
		}
		// The second port sees the packets in the opposite order.
		a, b, c := draw(first, i), draw(again, n-1-i), draw(other, i)
		if draw(first, n-1-i) == b {
			same++
		}
		one, two, both = one+count(a), two+count(c), both+count(a && c)
	}
	if same != n {
		t.Errorf("%d of %d packets had the same fate at the same port", same, n)
	}
	p := float64(one) * float64(two) / n / n // both, if independent
	if off := math.Abs(float64(both) - n*p); off > 4*math.Sqrt(n*p*(1-p)) {
		t.Errorf("two ports marked %d and %d packets, %d of them both, want %.0f", one, two, both, n*p)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Only ECN-capable packets that are not marked yet are changed, and of them the
// two bits and the checksum alone (RFC 3168, section 5).
func TestMarksOnlyECNCapablePackets(t *testing.T) {
	offer := redPort(t, "p0")
	for _, ecn := range []wire.ECN{wire.NotECT, wire.ECT0, wire.ECT1, wire.CE} {
		one := frameOf(200, 0)
		datagram(one.Data, ecn)
		one.Parse()
		before := append([]byte(nil), one.Data...)
		o := offer(kmax+1, one)
		if capable := ecn == wire.ECT0 || ecn == wire.ECT1; o.Marked != capable || o.Dropped {
			t.Errorf("ECN %d: outcome %+v", ecn, o)
		}
		wantECN := ecn
		if o.Marked {
			wantECN = wire.CE
		}
		datagram(before, wantECN) // computes its checksum from the start
		if string(before) != string(one.Data) || one.Headers.ECN != wantECN {
			t.Errorf("ECN %d: headers % x, want % x", ecn, one.Data[14:34], before[14:34])
		}
	}
}

// IPv6 of ECT(1): only the traffic class changes.
func TestMarksIPv6(t *testing.T) {
	offer := redPort(t, "p0")
	one := &packet.Packet{Data: make([]byte, 100), Ingress: -1}
	wire.Ethernet(one.Data).Encode(&wire.EthernetFields{EtherType: 0x86dd})
	copy(one.Data[14:], []byte{0x68, 0xd1, 0xab, 0xcd, 0, 46, 59, 64}) // DSCP 35, ECT(1), label 0x1abcd
	one.Parse()
	if o := offer(kmax+1, one); !o.Marked {
		t.Fatalf("outcome %+v", o)
	}
	if got, want := [4]byte(one.Data[14:]), [4]byte{0x68, 0xf1, 0xab, 0xcd}; got != want {
		t.Errorf("IPv6 begins with % x, want % x", got, want)
	}
}

// ECN#: every packet that waited longer than ins_target is marked. If for longer than pst_interval
// every packet has waited for at least pst_target, one packet is marked, and the n+1-th
// pst_interval/sqrt(n) after the n-th. Source: Zhang, Bai and Chen, CoNEXT 2019, section 3.2, which
// takes the law from CoDel.
func TestECNSharpMarksAStandingQueue(t *testing.T) {
	const every = time.Microsecond
	for _, c := range []struct {
		name   string
		waited time.Duration
		want   func(at time.Duration) bool // since the first packet
	}{
		{"below both", 84 * time.Microsecond, func(time.Duration) bool { return false }},
		{"above ins_target", 201 * time.Microsecond, func(time.Duration) bool { return true }},
		{"standing at pst_target", 85 * time.Microsecond, standing(every)},
		{"standing at ins_target", 200 * time.Microsecond, standing(every)},
	} {
		port := sharpPort(t)
		for i := range 3000 {
			at := time.Duration(i) * every
			if got, want := passes(port, at, c.waited), c.want(at); got != want {
				t.Fatalf("%s: after %v marked %t, want %t", c.name, at, got, want)
			}
		}
	}
}

// standing computes the times of a standing queue's marks from the formula. They are the first
// packet later than pst_interval, and then the first packet at or after pst_interval/sqrt(n) since
// the n-th mark.
func standing(every time.Duration) func(time.Duration) bool {
	const interval = 200e3 // ns
	marks := map[time.Duration]bool{}
	last := interval + float64(every)
	for n := 1.0; last < 3e6; n++ {
		marks[time.Duration(last)] = true
		last = math.Ceil((last+math.Floor(interval/math.Sqrt(n)))/float64(every)) * float64(every)
	}
	return func(at time.Duration) bool { return marks[at] }
}

// One packet that waited less starts the interval anew.
func TestECNSharpForgivesAnEmptyQueue(t *testing.T) {
	port := sharpPort(t)
	marks := 0
	for i := range 10_000 {
		waited := 100 * time.Microsecond
		if i%200 == 199 { // every 200 us
			waited = 0
		}
		marks += count(passes(port, time.Duration(i)*time.Microsecond, waited))
	}
	if marks != 0 {
		t.Errorf("%d marks, and the queue never stood for longer than the interval", marks)
	}
}

func sharpPort(t *testing.T) *Port {
	sw := softSwitch(1<<20, 1)
	sw.Soft.ECN = &plan.ECN{
		Kind:             spec.ECNSharp,
		Target:           units.Duration(200 * time.Microsecond),
		PersistentTarget: units.Duration(85 * time.Microsecond),
		Interval:         units.Duration(200 * time.Microsecond), Priorities: []int{0},
	}
	_, ports := memory(t, sw, nil)
	return ports[0]
}

// passes lets a packet leave at a time for which it has waited, and reports whether it was marked.
func passes(p *Port, at, waited time.Duration) bool {
	const start = clock.Time(time.Second)
	one := frameOf(100, 0)
	p.Enqueue(start.Add(at-waited), one)
	p.Dequeue(start.Add(at))
	return p.Last().Marked && one.Headers.ECN == wire.CE && wire.IPv4(one.Data[14:]).ChecksumValid()
}
