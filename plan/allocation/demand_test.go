package allocation

import (
	"math/rand/v2"
	"strings"
	"testing"

	"railbed/internal/units"
	"railbed/plan"
)

// TestDemand checks rates by demand. They exceed no link's capacity and are as fast as possible.
// Pairs on the busiest link end together, and no pair ends later. Even rates are not faster.
func TestDemand(t *testing.T) {
	for name, p := range map[string]*plan.Plan{
		"one":      compile(t, "single-switch", "hosts: 6", ""),
		"blocking": compile(t, "leaf-spine", "leaves: 2, spines: 1, hosts-per-leaf: 3", ""),
		"wide": compile(t, "leaf-spine", "leaves: 3, spines: 2, hosts-per-leaf: 2",
			", \"leaf2--spine1\": {rate: 300mbit}"),
	} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 4))
			pairs, err := Pairs(AllToAll, len(p.Ranks))
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Pattern: AllToAll, Pairs: pairs}
			for range pairs {
				o.Demand = append(o.Demand, units.Bytes(r.IntN(1<<(10+r.IntN(14)))))
			}
			checkDemand(t, name, p, o)
		}
	}
	p := compile(t, "single-switch", "hosts: 3", "")
	if _, err := Compute(p, Options{Pairs: []Pair{{0, 1}}, Demand: make([]units.Bytes, 2)}); err == nil ||
		!strings.Contains(err.Error(), "2 demands for 1 pairs") {
		t.Error(err)
	}
}

func checkDemand(t *testing.T, name string, p *plan.Plan, o Options) {
	t.Helper()
	f, err := Compute(p, o)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(p, o.Pairs, Options{Headroom: f.Headroom})
	if err != nil {
		t.Fatal(err)
	}
	given := map[Pair]float64{}
	for _, e := range f.Phases[0].Rates {
		given[Pair{e.From, e.To}] = float64(e.Rate)
	}
	asked, load, last := make([]float64, len(n.capacity)), make([]float64, len(n.capacity)), 0.0
	for i, pair := range o.Pairs {
		carries := float64(max(o.Demand[i], leastDemand))
		last = max(last, carries/given[pair])
		for _, u := range n.uses[pair] {
			asked[u.Link] += given[pair] * u.Share
			load[u.Link] += carries * u.Share
		}
	}
	best := 0.0
	for l, c := range n.capacity {
		best = max(best, load[l]/c)
		if asked[l] > c+float64(len(o.Pairs)) {
			t.Errorf("%s: %s is asked for %v of %v", name, n.names[l], asked[l], c)
		}
	}
	if last > best*1.001 {
		t.Errorf("%s: the last pair ends after %v, and the fullest link could after %v", name, last, best)
	}
	even, err := Compute(p, Options{Pairs: o.Pairs})
	if err != nil {
		t.Fatal(err)
	}
	slowest := 0.0
	for i, pair := range o.Pairs {
		slowest = max(slowest, float64(max(o.Demand[i], leastDemand))/float64(
			even.From(pair.From, 0)[pair.To]))
	}
	if slowest < last*0.999 {
		t.Errorf("%s: even rates take %v, by demand %v", name, slowest, last)
	}
}
