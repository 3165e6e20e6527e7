package forward

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"railbed/internal/clock"
	"railbed/plan/spec"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

var defaultRoute = netip.MustParsePrefix("0.0.0.0/0")

// TestFlowLabel: with the option, flows that differ only in their label spread; without it they do
// not.
func TestFlowLabel(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := newLeaf(t, spines(t, 8), spec.Flow, depths{}, nil)
		var err error
		if l.table, err = newWith(options{FlowLabel: on}, l.plan, &l.sw, l.pool, depths{}); err != nil {
			t.Fatal(err)
		}
		l.d.src, l.d.dst = l.plan.Nodes[0].Loopbacks[1].Addr(), l.plan.Nodes[1].Loopbacks[1].Addr()
		used := map[int]bool{}
		for label := range uint32(200) {
			d := l.d
			d.flowLabel = label
			used[l.path(0, d)] = true
		}
		if on != (len(used) == 8) || !on && len(used) != 1 {
			t.Errorf("labels count %t: %d paths", on, len(used))
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, balance := range []string{spec.Flow, spec.Flowlet, spec.Spray, spec.RoundRobin, spec.LeastQueue} {
		l := newLeaf(t, spines(t, 4), balance, depths{}, nil)
		one, expiring := l.d.packet(l.pool), l.d.with(func(d *datagram) { d.ttl = 1 }).packet(l.pool)
		now := clock.Time(0)
		frame := slices.Clone(one.Data)
		if n := testing.AllocsPerRun(5000, func() {
			now += 100_000
			one.Ordinal++
			copy(one.Data, frame)
			one.Parse()
			l.table.Decide(now, one, l.in)
			if d := l.table.Decide(now, expiring, l.in); d.Action == Reply {
				l.pool.Put(d.Reply)
			} else {
				t.Fatalf("%+v", d)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per packet", balance, n)
		}
	}
}
