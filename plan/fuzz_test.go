package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/plan/topology"
)

// FuzzCompile compiles random testbeds. There is no panic, there are problems if there is no plan,
// and every plan has the invariants.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, uint64(seed*0x9e3779b97f4a7c15))
	}
	f.Fuzz(func(t *testing.T, high, low uint64) {
		testbed := randomTestbed(rand.New(rand.NewPCG(high, low)))
		p, err := Compile(testbed)
		if err != nil {
			var problems spec.Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("%v is no problem of the file", err)
			}
			return
		}
		checkInvariants(t, p)
		again, err := Compile(testbed)
		if err != nil || again.Hash() != p.Hash() {
			t.Fatalf("a second compilation differs: %v", err)
		}
		if !p.Switches[0].Bridged() {
			checkRoutes(t, p)
		}
	})
}

func randomTestbed(r *rand.Rand) *spec.Testbed {
	t := &spec.Testbed{Name: "t", Seed: 1 + r.Uint64N(3)}
	if r.IntN(3) == 0 {
		randomWiring(r, &t.Fabric)
	} else {
		all := topology.Generators()
		g := all[r.IntN(len(all))]
		t.Fabric.Topology = g.Name
		for _, p := range g.Params {
			if p.Required || r.IntN(2) == 0 {
				value := 1 + r.IntN(4)
				if p.Even {
					value = 2 + 2*r.IntN(2)
				}
				if r.IntN(20) == 0 {
					value = r.IntN(5)
				}
				t.Fabric.Params = append(t.Fabric.Params, spec.Entry[int]{Key: p.Name, Value: value})
			}
		}
	}
	if r.IntN(4) == 0 {
		t.Fabric.Switch.Kind = spec.Bridge
	}
	if r.IntN(2) == 0 {
		t.Fabric.Switch = randomSoft(r)
		t.Fabric.Memory = units.Bytes(r.Uint64N(2) << 24)
	}
	if r.IntN(8) == 0 {
		t.Fabric.Switches = append(t.Fabric.Switches,
			spec.Entry[spec.Switch]{Key: "leaf*",
				Value: spec.Switch{Kind: spec.Bridge, Buffer: units.Bytes(r.IntN(4000))}})
	}
	for _, key := range []string{"default", "host", "fabric", "h0--leaf1", "*--spine1", "leaf1--*"} {
		if r.IntN(12) == 0 {
			t.Fabric.Links = append(t.Fabric.Links, spec.Entry[spec.Link]{Key: key, Value: randomLink(r)})
		}
	}
	for _, key := range []string{"default", "h1", "h[0-3]"} {
		if r.IntN(10) == 0 {
			t.Nodes = append(t.Nodes, spec.Entry[spec.Node]{Key: key,
				Value: spec.Node{Ranks: r.IntN(3), NICs: r.IntN(2) * r.IntN(3)}})
		}
	}
	if r.IntN(6) == 0 {
		t.Addressing = spec.Addressing{Loopbacks4: fmt.Sprintf("10.1.0.0/%d", 22+r.IntN(9)),
			Links6: fmt.Sprintf("fd00::/%d", 112+r.IntN(16))}
	}
	if r.IntN(3) == 0 {
		t.Steps = append(t.Steps, spec.Step{Workload: &spec.Workload{Name: "w", Kind: "all-reduce",
			Size: 4096}})
	}
	return t
}

// randomSoft returns a soft switch with some random settings.
func randomSoft(r *rand.Rand) spec.Switch {
	priorities := func() (list []int) {
		for q := range spec.Priorities {
			if r.IntN(8) == 0 {
				list = append(list, q)
			}
		}
		return list
	}
	size := func() *units.Bytes {
		if r.IntN(3) > 0 {
			return nil
		}
		n := units.Bytes(r.Uint64N(60e3))
		return &n
	}
	s := spec.Switch{Kind: spec.Soft, Buffer: units.Bytes(r.Uint64N(2) * r.Uint64N(4e6))}
	if r.IntN(4) == 0 {
		s.Forwarding = spec.L2
	}
	balances := []string{"", spec.Flow, spec.Polarised, spec.Flowlet, spec.Spray, spec.RoundRobin,
		spec.LeastQueue}
	s.LoadBalance = balances[r.IntN(len(balances))]
	for range r.IntN(3) {
		s.Priorities = append(s.Priorities, spec.Entry[int]{Key: fmt.Sprint(r.IntN(65)), Value: r.IntN(9)})
	}
	if r.IntN(3) == 0 {
		s.Alpha = units.Factor{Num: 1 + r.Uint64N(9), Den: 1 + r.Uint64N(9)}
		s.Scheduler = &spec.Scheduler{Strict: priorities(),
			Weights: spec.Ordered[int]{{Key: fmt.Sprint(r.IntN(8)), Value: 1 + r.IntN(5)}}}
	}
	if r.IntN(3) == 0 {
		s.ECN = &spec.ECN{Kind: []string{"", spec.RED, spec.ECNSharp}[r.IntN(3)], Priorities: priorities()}
	}
	if r.IntN(3) == 0 {
		s.Trim = &spec.Trim{Priorities: priorities()}
	}
	if r.IntN(3) == 0 {
		s.PFC = &spec.PFC{Priorities: priorities(), XOff: size(), XOn: size(), Headroom: size()}
	}
	if r.IntN(3) == 0 {
		s.GFC = &spec.GFC{Kind: []string{"", spec.GFCBuffer, spec.GFCTime}[r.IntN(3)],
			Priorities: priorities(), B1: size(), BM: size(), Off: r.IntN(8) == 0}
	}
	return s
}

// randomWiring wires a few nodes and switches at random, mostly connected.
func randomWiring(r *rand.Rand, f *spec.Fabric) {
	f.Topology = spec.Explicit
	switches := 1 + r.IntN(6)
	for i := range switches {
		f.Switches = append(f.Switches, spec.Entry[spec.Switch]{Key: fmt.Sprintf("s%d", i)})
		if i > 0 && r.IntN(12) > 0 {
			f.Connect = append(f.Connect, fmt.Sprintf("s%d -- s%d", r.IntN(i), i))
		}
	}
	for range r.IntN(5) {
		if a, b := r.IntN(switches), r.IntN(switches); a != b || r.IntN(20) == 0 {
			f.Connect = append(f.Connect, fmt.Sprintf("s%d -- s%d", a, b))
		}
	}
	for i := range 1 + r.IntN(6) {
		f.Hosts = append(f.Hosts, fmt.Sprintf("h%d", i))
		for range 1 + r.IntN(3) {
			f.Connect = append(f.Connect, fmt.Sprintf("s%d -- h%d", r.IntN(switches), i))
		}
	}
}

func randomLink(r *rand.Rand) spec.Link {
	direction := func() spec.Direction {
		return spec.Direction{
			DropEvery:  r.IntN(20) / 19,
			Overhead:   units.Bytes(r.Uint64N(20) / 19 * 24),
			Jitter:     units.Duration(r.Int64N(10) / 9 * r.Int64N(1e5)),
			JitterKind: []string{"", "", "", "", "", spec.Exponential}[r.IntN(6)],
			Rate:       units.Rate(r.Uint64N(5) * r.Uint64N(1e9)),
			Queue:      units.Bytes(r.Uint64N(2) * r.Uint64N(1e5)),
			Delay:      units.Duration(r.Int64N(2) * r.Int64N(1e6)),
			Loss:       units.Ratio{Num: r.Uint64N(2), Den: 1000},
		}
	}
	l := spec.Link{Direction: direction(), Weight: r.IntN(8) / 7 * r.IntN(4),
		MTU: []int{0, 0, 1280, 1500, 9000}[r.IntN(5)]}
	if r.IntN(3) == 0 {
		one := direction()
		l.AToB = &one
	}
	return l
}
