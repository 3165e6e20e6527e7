package schedule

import (
	"fmt"
	"slices"
)

// Rails lists the ranks of each node in the order of their rails. Each rail has one rank of each
// node, and messages between nodes stay on a rail.
type Rails [][]int

// check returns an error if the rails do not consist of the ranks numbered from 0.
func (r Rails) check() error {
	if len(r) == 0 || len(r[0]) == 0 {
		return fmt.Errorf("no node has ranks, want at least one")
	}
	all := slices.Concat(r...)
	for node, ranks := range r {
		if len(ranks) != len(r[0]) {
			return fmt.Errorf("node %d has %d ranks and node 0 has %d: want the same number on "+
				"each, one for each rail", node, len(ranks), len(r[0]))
		}
	}
	for rank := range all {
		if !slices.Contains(all, rank) {
			return fmt.Errorf("no node has rank %d of %d", rank, len(all))
		}
	}
	return nil
}

// rail returns the ranks on a rail, by node.
func (r Rails) rail(i int) (ranks []int) {
	for _, node := range r {
		ranks = append(ranks, node[i])
	}
	return ranks
}

// MakeHierarchical returns the all-reduce of Cho et al., "BlueConnect: Decomposing all-reduce for deep
// learning on heterogeneous network hierarchy" (2019), with two levels. It is a reduce-scatter
// within each node, an all-reduce of each rank's part along its rail, and an all-gather within each
// node, each by ring. An all-gather is the second half of this algorithm, and a reduce-scatter the
// first half.
func MakeHierarchical(k Kind, rails Rails) (*Schedule, error) {
	if err := rails.check(); err != nil {
		return nil, fmt.Errorf("make schedule: %s by rails: %w", k, err)
	}
	nodes, each := len(rails), len(rails[0])
	n := nodes * each
	b := build(Schedule{Kind: k, Algorithm: Hierarchical, Chunks: n}, n, 1)
	// In an all-reduce each rail has consecutive chunks, so they are one message within the node.
	// In the others a rank has the chunk of its own number.
	chunk := func(node, rail int) int {
		if k == AllReduce {
			return rail*nodes + node
		}
		return rails[node][rail]
	}
	within := make([]part, each) // by rail
	along := make([][]part, each)
	for rail := range each {
		for node := range nodes {
			one := chunks{chunk(node, rail), 1}
			along[rail] = append(along[rail], part{one})
			within[rail] = append(within[rail], one)
		}
		if k == AllReduce {
			within[rail] = part{{chunk(0, rail), nodes}}
		}
	}
	switch k {
	case AllReduce, ReduceScatter:
		for _, ranks := range rails {
			b.around(ranks, within, -1, (*builder).combine)
		}
		for rail := range each {
			b.around(rails.rail(rail), along[rail], -1, (*builder).combine)
		}
	case AllGather:
		for rank := range n {
			b.keep(rank, rank)
		}
	default:
		return nil, fmt.Errorf("make schedule: %s by rails: want %s, %s or %s", k, AllReduce, AllGather,
			ReduceScatter)
	}
	if k != ReduceScatter {
		for rail := range each {
			b.around(rails.rail(rail), along[rail], 0, (*builder).receive)
		}
		for _, ranks := range rails {
			b.around(ranks, within, 0, (*builder).receive)
		}
	}
	if n == 1 {
		b.keep(0, 0)
	}
	return b.Schedule, nil
}
