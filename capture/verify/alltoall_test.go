package verify

import (
	"slices"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/verifytest"
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
				if got := verifytest.AllToAllBytes(rank, ranks, units.Bytes(4*elements), 4,
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
		{evidence.AllToAll, []string{"h0", "h1", "h0", "h1"}, true},
		{evidence.AllToAll, []string{"h0", "h1", "h2", "h3"}, false},
		{evidence.AllToAll, []string{"h0"}, false},
		{"", []string{"h0"}, false},
		{evidence.Pairs, []string{"h0", "h0", "h1", "h1"}, false}, // the pairs are 0, 2 and 3, 1
		{evidence.Pairs, []string{"h0", "h1", "h2", "h1"}, true},
	} {
		w := evidence.Workload{Pattern: c.pattern, Pairs: [][2]int{{0, 2}, {3, 1}}}
		for i, node := range c.nodes {
			w.Ranks = append(w.Ranks, evidence.Rank{Rank: i, Node: node})
		}
		if from, to, found := w.Within(); found != c.want ||
			found && (from.Node != to.Node || from.Rank == to.Rank) {
			t.Errorf("%q, %q: %v, %d and %d", c.pattern, c.nodes, found, from.Rank, to.Rank)
		}
	}
}

// TestChecksOfAWorkload holds that a check of one workload looks at its packets alone.
func TestChecksOfAWorkload(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	of := func(node int) Selection {
		n := &s.Plan.Nodes[node]
		return Selection{Workload: &evidence.Workload{Name: n.Name,
			Ranks: []evidence.Rank{{Node: n.Name, NIC: "eth0", Addr: verifytest.Loopback(n), Port: 7000}}}}
	}
	s.Cut(s.Plan.Switch("leaf1").Soft.Trim.DSCP)
	var cut, whole int // of which node's packets every one is cut, and of which none
	if s.Packet("h1:eth0", true)%2 == 0 {
		cut = 1
	} else {
		whole = 1
	}
	s.Change(func(k verifytest.Sighting) bool {
		return k.Comment != "" && k.Queue == 4 && k.ID%2 == 0
	}, func(k *verifytest.Sighting) { k.Comment = "railbed depth=50000 late=0ns" })
	deep, flat := &spec.Bound{Op: ">=", Limit: 40000}, &spec.Bound{Op: "<=", Limit: 1000}
	two, none := &spec.Bound{Op: "==", Limit: 200}, &spec.Bound{Op: "==", Limit: 0}
	results, _ := s.Run(
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
	if name := results[0].Name; name != "trims "+s.Plan.Nodes[cut].Name {
		t.Errorf("the check is called %q", name)
	}
}
