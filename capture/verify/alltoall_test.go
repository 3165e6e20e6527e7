package verify

import (
	"slices"
	"testing"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// TestAllToAllFormula counts what each rank sends, element by element.
func TestAllToAllFormula(t *testing.T) {
	for ranks := 1; ranks < 9; ranks++ {
		for elements := range 40 {
			owner := make([]int, elements) // of an element, in order, so that parts differ by one at most
			for i := range owner {
				owner[i] = i % ranks
			}
			slices.Sort(owner)
			for rank := range ranks {
				sent := 0
				for _, to := range owner {
					if to != rank {
						sent += 4
					}
				}
				if got := allToAllBytes(rank, ranks, units.Bytes(4*elements), 4,
					3); got != units.Bytes(3*sent) {
					t.Errorf("rank %d of %d with %d elements: %d, want %d", rank, ranks, elements, got,
						3*sent)
				}
				if elements%ranks == 0 && sent != 4*elements*(ranks-1)/ranks {
					t.Errorf("%d bytes are no (n-1)/n of %d elements", sent, elements)
				}
			}
		}
	}
}

// TestWithin holds that bytes which cross no link are noticed: of neighbours in a ring, of
// any two in an all-to-all.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		pattern string
		nodes   []string
		want    bool
	}{
		{"", []string{"h0", "h1", "h0", "h1"}, false},
		{"", []string{"h0", "h0", "h1", "h1"}, true},
		{"", []string{"h0", "h1", "h0"}, true}, // around the end
		{AllToAll, []string{"h0", "h1", "h0", "h1"}, true},
		{AllToAll, []string{"h0", "h1", "h2", "h3"}, false},
		{AllToAll, []string{"h0"}, false},
		{"", []string{"h0"}, false},
		{Pairs, []string{"h0", "h0", "h1", "h1"}, false}, // the pairs are 0, 2 and 3, 1
		{Pairs, []string{"h0", "h1", "h2", "h1"}, true},
	} {
		w := Workload{Pattern: c.pattern, Pairs: [][2]int{{0, 2}, {3, 1}}}
		for i, node := range c.nodes {
			w.Ranks = append(w.Ranks, Rank{Rank: i, Node: node})
		}
		if from, to, found := w.within(); found != c.want ||
			found && (from.Node != to.Node || from.Rank == to.Rank) {
			t.Errorf("%q, %q: %v, %d and %d", c.pattern, c.nodes, found, from.Rank, to.Rank)
		}
	}
}

// TestChecksOfAWorkload holds that a check of one workload looks at its packets alone.
func TestChecksOfAWorkload(t *testing.T) {
	s := softScene(t, softFile)
	of := func(node int) Selection {
		n := &s.plan.Nodes[node]
		return Selection{Workload: &Workload{Name: n.Name,
			Ranks: []Rank{{Node: n.Name, NIC: "eth0", Addr: loopback(n), Port: 7000}}}}
	}
	s.cut(s.plan.Switch("leaf1").Soft.Trim.DSCP)
	var cut, whole int // of which node's packets every one is cut, and of which none
	if s.packet("h1:eth0", true)%2 == 0 {
		cut = 1
	} else {
		whole = 1
	}
	s.change(func(k sighting) bool {
		return k.comment != "" && k.queue == 4 && k.id%2 == 0
	}, func(k *sighting) { k.comment = "railbed depth=50000 late=0ns" })
	deep, flat := &spec.Bound{Op: ">=", Limit: 40000}, &spec.Bound{Op: "<=", Limit: 1000}
	two, none := &spec.Bound{Op: "==", Limit: 200}, &spec.Bound{Op: "==", Limit: 0}
	results, _ := s.run(
		newTrims(of(cut), two), newTrims(of(whole), none), newTrims(Selection{}, two),
		newTrims(of(whole), two), newTrims(of(cut), none),
		newQueueDepth(of(cut), -1, deep, nil), newQueueDepth(of(whole), -1, flat, nil),
		newQueueDepth(Selection{}, -1, flat, nil), newQueueDepth(of(3), -1, flat, nil),
	)
	for i, want := range []verdict.Verdict{pass, pass, pass, fail, fail, pass, pass, fail, unclear} {
		if results[i].Verdict != want {
			t.Errorf("check %d, want %s: %v", i, want, results[i])
		}
	}
	if name := results[0].Name; name != "trims "+s.plan.Nodes[cut].Name {
		t.Errorf("the check is called %q", name)
	}
}
