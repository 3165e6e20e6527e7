package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// algorithm makes a schedule for a number of ranks.
type algorithm struct {
	name string
	make func(n, root int) *Schedule
}

// algorithms lists the algorithms of each kind, the default first.
var algorithms = map[Kind][]algorithm{
	AllReduce: {
		{"ring", func(n, _ int) *Schedule { return ring(AllReduce, n) }},
		{"tree", func(n, _ int) *Schedule { return doubleTree(n) }},
		{"halving-doubling", func(n, _ int) *Schedule { return halvingDoubling(n) }},
		{"recursive-doubling", func(n, _ int) *Schedule { return recursiveDoubling(n) }},
	},
	AllGather: {
		{"ring", func(n, _ int) *Schedule { return ring(AllGather, n) }},
		{HyperCube, func(n, _ int) *Schedule { return hyperCube(n) }},
	},
	ReduceScatter: {{"ring", func(n, _ int) *Schedule { return ring(ReduceScatter, n) }}},
	Broadcast: {
		{"ring", func(n, root int) *Schedule { return chain(Broadcast, n, root) }},
		{"binomial", func(n, root int) *Schedule { return binomial(Broadcast, n, root) }},
	},
	Reduce: {
		{"ring", func(n, root int) *Schedule { return chain(Reduce, n, root) }},
		{"binomial", func(n, root int) *Schedule { return binomial(Reduce, n, root) }},
	},
	Gather: {
		{"direct", func(n, root int) *Schedule { return shares(Gather, "direct", n, root) }},
		{"binomial", func(n, root int) *Schedule { return shares(Gather, "binomial", n, root) }},
	},
	Scatter: {
		{"direct", func(n, root int) *Schedule { return shares(Scatter, "direct", n, root) }},
		{"binomial", func(n, root int) *Schedule { return shares(Scatter, "binomial", n, root) }},
	},
	AllToAll:    {{"direct", func(n, _ int) *Schedule { return direct(n) }}},
	Barrier:     {{"dissemination", func(n, _ int) *Schedule { return dissemination(n) }}},
	SendReceive: {{"ring", func(n, _ int) *Schedule { return shift(n) }}},
}

// Algorithms returns the names of a kind's algorithms, the default first. It returns none for an
// unknown kind.
func Algorithms(k Kind) []string {
	var names []string
	for _, a := range algorithms[k] {
		names = append(names, a.name)
	}
	return names
}

// HyperCube is the algorithm whose number of ranks must be a power of two.
const HyperCube = "hypercube"

// Make returns the schedule of an algorithm for a number of ranks. Only Rooted kinds use root.
func Make(k Kind, name string, ranks, root int) (*Schedule, error) {
	i := slices.IndexFunc(algorithms[k], func(a algorithm) bool { return a.name == name })
	if i < 0 {
		return nil, fmt.Errorf("make schedule: %s by %q: want %s", k, name,
			strings.Join(Algorithms(k), " or "))
	}
	if ranks < 1 || root < 0 || root >= ranks {
		return nil, fmt.Errorf("make schedule: %d ranks with root %d: want at least 1 rank, and a "+
			"root below the number of ranks", ranks, root)
	}
	if name == HyperCube && ranks&(ranks-1) != 0 {
		return nil, fmt.Errorf("make schedule: %s by %s with %d ranks: want a power of two, or another "+
			"algorithm", k, name, ranks)
	}
	return algorithms[k][i].make(ranks, root), nil
}
