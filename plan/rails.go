package plan

import (
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Rails returns the ranks of each node, in order. The first ranks of all nodes are on the same
// rail, and so on.
func Rails(ranks []Rank) (rails schedule.Rails) {
	node := map[string]int{}
	for _, r := range ranks {
		i, known := node[r.Node]
		if !known {
			i = len(rails)
			node[r.Node] = i
			rails = append(rails, nil)
		}
		rails[i] = append(rails[i], r.Rank)
	}
	return rails
}

// HaveRails reports whether there are several nodes with the same number of ranks each, more than
// one.
func HaveRails(ranks []Rank) bool {
	rails := Rails(ranks)
	if len(rails) < 2 || len(rails[0]) < 2 {
		return false
	}
	_, err := schedule.MakeHierarchical(schedule.AllReduce, rails)
	return err == nil
}

// AlgorithmFor resolves algorithm auto for a kind, ranks, channel count and buffer size. It returns
// any other algorithm unchanged.
func AlgorithmFor(kind, algorithm string, ranks []Rank, channels int, size units.Bytes) string {
	if algorithm != schedule.Auto {
		return algorithm
	}
	return schedule.Choose(schedule.Kind(kind), len(ranks), uint64(size), channels == 0 && HaveRails(ranks))
}

// Algorithms returns the algorithms of a workload for its smallest and its largest buffer. They
// differ only if auto chooses by the size.
func Algorithms(w *spec.Workload, ranks []Rank) (smallest, largest string) {
	from, to := w.Size, w.Size
	if w.Sizes != nil {
		from, to = w.Sizes.From, w.Sizes.To
	}
	return AlgorithmFor(w.Collective(), w.Algorithm, ranks, w.Channels, from),
		AlgorithmFor(w.Collective(), w.Algorithm, ranks, w.Channels, to)
}

// Hops returns pairs of ranks, of which the first sends to the second. Hierarchical has hops along
// each rail. Any other algorithm counts as a ring of all ranks.
func Hops(algorithm string, ranks []Rank) (hops [][2]Rank) {
	rings := [][]Rank{ranks}
	if algorithm == schedule.Hierarchical && HaveRails(ranks) {
		nodes := Rails(ranks)
		rings = make([][]Rank, len(nodes[0]))
		for _, node := range nodes {
			for rail, rank := range node {
				rings[rail] = append(rings[rail], ranks[rank])
			}
		}
	}
	for _, ring := range rings {
		for i, from := range ring {
			hops = append(hops, [2]Rank{from, ring[(i+1)%len(ring)]})
		}
	}
	return hops
}
