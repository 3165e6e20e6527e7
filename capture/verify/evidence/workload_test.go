package evidence

import (
	"testing"
)

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
		if from, to, found := w.Within(); found != c.want ||
			found && (from.Node != to.Node || from.Rank == to.Rank) {
			t.Errorf("%q, %q: %v, %d and %d", c.pattern, c.nodes, found, from.Rank, to.Rank)
		}
	}
}

// TestNoneWithinANode: what ranks of one node send switches crosses links.
func TestNoneWithinANode(t *testing.T) {
	w := Workload{Ranks: []Rank{{Node: "h0"}, {Rank: 1, Node: "h0"}}}
	if _, _, found := w.Within(); !found {
		t.Error("a ring of two ranks of one node crosses links")
	}
	w.Ranks[0].Transport, w.Ranks[1].Transport = TransportInSwitch, TransportInSwitch
	if _, _, found := w.Within(); found {
		t.Error("what they send a switch crosses none")
	}
}
