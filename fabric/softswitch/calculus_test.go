package softswitch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/testkit/calculustest"
)

// Sources that keep to b + r*t, through the engine's own NICs, links and switches,
// in virtual time. A link of the rate R sends a packet as a whole and hands it on when
// its last bit is there, a propagation delay later.

const (
	lineRate  = 12.5e6 // bytes a second: 100 Mbit/s
	frameMost = 1514.0
	hopDelay  = 50 * time.Microsecond
)

// taking is the time of some bytes at the rate of the line.
func taking(bytes float64) time.Duration {
	return time.Duration(bytes / lineRate * float64(time.Second))
}

// watched is how much waits at a port, at most, the frame on the line included.
type watched struct {
	most map[string]int64
	rig  *rig
}

func (w *watched) Observe(o *Observation) {
	if at := w.rig.engine.ports[o.Port]; o.Kind == Queued {
		w.most[at.name] = max(w.most[at.name], at.egress.Bytes())
	}
}

// source is one node's, to node 0, with packets of one priority.
type source struct {
	from        int
	burst, rate float64 // bytes, bytes a second
	priority    uint8
	lengths     []int
	seed        uint64
}

// delays sends the packets of the sources. It returns the delay of each packet of each source, and
// the departures at node 0.
func delays(t *testing.T, r *rig, packets int, sources ...source) ([][]time.Duration, *calculustest.Trace) {
	t.Helper()
	type sent struct {
		at     clock.Time
		source int
	}
	type due struct {
		calculustest.Arrival
		source int
	}
	var all []due
	for i, s := range sources {
		for _, a := range calculustest.Source(rand.New(rand.NewPCG(s.seed, uint64(i))), s.burst, s.rate,
			packets, s.lengths...) {
			all = append(all, due{a, i})
		}
	}
	slices.SortStableFunc(all, func(x, y due) int { return int(x.At - y.At) })
	if len(all) > 60_000 {
		t.Fatal("the packets' numbers do not suffice")
	}
	of := map[uint16]sent{}
	for _, a := range all {
		s := sources[a.source]
		r.send(a.At, flow{from: s.from, to: 0, dscp: s.priority << 3, port: uint16(a.source)}, a.Bytes)
		of[r.serial] = sent{a.At, a.source}
	}
	for _, p := range r.engine.ports {
		r.engine.Observe(p.index, true)
	}
	r.drain(time.Hour)
	r.balance()
	took, departed := make([][]time.Duration, len(sources)), &calculustest.Trace{}
	for _, a := range r.got {
		s := of[a.id]
		took[s.source] = append(took[s.source], a.at.Sub(s.at))
		departed.Add(a.at, int64(a.length))
	}
	if len(r.got) != len(all) {
		t.Fatalf("%d of %d packets came", len(r.got), len(all))
	}
	return took, departed
}

// calculusRig is n nodes on a switch. All flows share node 0's link.
func calculusRig(t *testing.T, nodes int, links string) (*rig, *watched) {
	w := &watched{most: map[string]int64{}}
	w.rig = newRig(t, single(nodes,
		fmt.Sprintf("  switch: {kind: soft, buffer: 16MB, alpha: 8, scheduler: {strict: [7, 6, 5, 4, 3, 2, "+
			"1, 0]}}\n"+
			"  links: {default: {rate: 100mbit, delay: %v, mtu: 1500}%s}\nnodes: {default: {nic-queue: "+
			"16MB}}\n",
			hopDelay, links)), w)
	return w.rig, w
}

// TestOneServer: a source of (b, r) through a link of the rate R >= r. Backlog at most
// b, delay at most h = b/R + T (Le Boudec and Thiran, theorems 1.4.1 and 1.4.2 with the
// service curve R*(t-T)). A greedy source attains both. The second link carries what the first one
// lets through without another burst (theorem 1.4.6), and being store and forward adds
// one packet, l/R, and its own T (theorem 1.7.1).
func TestOneServer(t *testing.T) {
	for _, c := range []struct{ burst, rate float64 }{{20e3, 1e6}, {100e3, 6e6}, {1514, 12e6},
		{60e3, 12.5e6}} {
		r, w := calculusRig(t, 2, "")
		took, departed := delays(t, r, 6000,
			source{from: 1, burst: c.burst, rate: c.rate, lengths: []int{64, 700, 1514}, seed: 3})
		h := taking(c.burst) + hopDelay + taking(frameMost) + hopDelay
		most := slices.Max(took[0])
		// A time is rounded to a nanosecond at each of two links.
		if most > h+2 || most < h-taking(2*frameMost) {
			t.Errorf("(%v, %v): a packet took %v, want at most %v, and about so much", c.burst, c.rate, most,
				h)
		}
		if backlog := float64(w.most["h1:eth0"]); backlog > c.burst ||
			backlog < c.burst-2*frameMost-c.burst*c.rate/lineRate {
			t.Errorf("(%v, %v): %v bytes waited in the NIC, want at most the burst, and about so much",
				c.burst, c.rate, backlog)
		}
		if backlog := w.most["leaf1:p0"]; float64(backlog) > frameMost {
			t.Errorf("(%v, %v): %v bytes waited behind a link of the same rate", c.burst, c.rate, backlog)
		}
		// What leaves keeps to R*t and a packet, and to the source's curve and a packet
		// (theorems 1.4.3 and 1.7.1).
		for _, out := range []struct{ burst, rate float64 }{{frameMost, lineRate},
			{c.burst + frameMost, c.rate}} {
			if got := departed.Burst(out.rate); got > out.burst+1 {
				t.Errorf("(%v, %v): %v bytes at once and %v bytes/s came, want at most %v", c.burst, c.rate,
					got, out.rate, out.burst)
			}
		}
	}
}

// TestSharedLink: sources of (b_i, r_i) share a link of the rate R >= sum of r_i, first in, first
// out. The traffic from each NIC's own link is at most (b_i + l, r_i). So at most the sum of b_i +
// l waits, and no packet waits longer than that takes. Sources: Cruz 1991, the FIFO multiplexer; Le
// Boudec and Thiran, theorems 1.4.1 and 1.4.2 with the sum of the curves.
func TestSharedLink(t *testing.T) {
	r, w := calculusRig(t, 5, "")
	var all []source
	bursts, sum := 0.0, 0.0
	for i := range 4 {
		s := source{from: 1 + i, burst: 10e3 * float64(1+i), rate: lineRate / 4, lengths: []int{300, 1514},
			seed: uint64(i)}
		all = append(all, s)
		bursts, sum = max(bursts, s.burst), sum+s.burst+frameMost
	}
	took, departed := delays(t, r, 3000, all...)
	if backlog := float64(w.most["leaf1:p0"]); backlog > sum || backlog < sum/4 {
		t.Errorf("%v bytes waited, want at most %v, and not much less", backlog, sum)
	}
	h := taking(sum) + 2*hopDelay
	worst := time.Duration(0)
	for i, s := range all {
		most := slices.Max(took[i])
		if own := taking(s.burst); most > own+h+4 {
			t.Errorf("source %d: a packet took %v, want at most %v", i, most, own+h)
		}
		worst = max(worst, most)
	}
	if worst < h/4 {
		t.Errorf("a packet took %v at most: the sources never met; the bound is %v", worst, h)
	}
	if got := departed.Burst(lineRate); got > frameMost+1 {
		t.Errorf("%v bytes came at once, want a packet", got)
	}
}

// TestPriorityHasARateLatencyCurve: beside permanent other traffic, the first priority has the
// service curve R*(t - l/R). It waits for one packet of a lower priority, which is not interrupted
// (Le Boudec and Thiran, proposition 1.3.4). So its delay is at most b/R + l/R + T at its NIC, and
// as much again, for one packet, at the switch.
func TestPriorityHasARateLatencyCurve(t *testing.T) {
	r, w := calculusRig(t, 3, "")
	const burst, rate = 12e3, 3e6
	others := source{burst: 100e3, rate: lineRate, lengths: []int{1514}, seed: 9}
	same, across := others, others
	same.from, across.from = 1, 2
	took, _ := delays(t, r, 4000, source{from: 1, burst: burst, rate: rate, priority: 6,
		lengths: []int{200, 1000}, seed: 8}, same, across)
	h := taking(burst) + taking(frameMost) + hopDelay + taking(1000+1000) + taking(frameMost) + hopDelay
	if most := slices.Max(took[0]); most > h+4 || most < h/3 {
		t.Errorf("a packet of the first priority took %v, want at most %v, and not much less", most, h)
	}
	if slices.Max(took[1]) < 2*h || w.most["leaf1:p0"] < 100e3 {
		t.Errorf("the others took %v at most, and %d bytes waited: there was nothing to go before",
			slices.Max(took[1]), w.most["leaf1:p0"])
	}
}
