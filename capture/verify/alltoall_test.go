package verify

import (
	"slices"
	"testing"

	"railbed/fabric/units"
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
				if got := AllToAllBytes(rank, ranks, units.Bytes(4*elements), 3); got != units.Bytes(3*sent) {
					t.Errorf("rank %d of %d with %d elements: %d, want %d", rank, ranks, elements, got, 3*sent)
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
	} {
		w := Workload{Pattern: c.pattern}
		for i, node := range c.nodes {
			w.Ranks = append(w.Ranks, Rank{Rank: i, Node: node})
		}
		if from, to, found := w.within(); found != c.want || found && (from.Node != to.Node || from.Rank == to.Rank) {
			t.Errorf("%q, %q: %v, %d and %d", c.pattern, c.nodes, found, from.Rank, to.Rank)
		}
	}
}
