package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Names of algorithms. Make makes no schedule by the last five. Choose resolves Auto, Hierarchical needs
// Rails, the phases of Pairwise can be computed, a switch performs InNetwork, and a file defines MSCCL.
const (
	Ring              = "ring"
	Tree              = "tree"
	HalvingDoubling   = "halving-doubling"
	RecursiveDoubling = "recursive-doubling"
	Binomial          = "binomial"
	HyperCube         = "hypercube" // It needs a power of two ranks.
	Direct            = "direct"
	Dissemination     = "dissemination"
	Auto              = "auto"
	Hierarchical      = "hierarchical"
	Pairwise          = "pairwise"
	InNetwork         = "in-network"
	MSCCL             = "msccl"
)

// Choices returns the names of the algorithms of a kind, the default first. It returns none for an unknown
// kind.
func Choices(k Kind) (names []string) {
	for _, a := range algorithms[k] {
		names = append(names, a.name)
	}
	return names
}

// Algorithms returns the names of the algorithms of a kind by which Make makes schedules, the default first.
func Algorithms(k Kind) (names []string) {
	for _, a := range algorithms[k] {
		if a.make != nil {
			names = append(names, a.name)
		}
	}
	return names
}

// find returns an algorithm of a kind. An unknown algorithm is empty.
func find(k Kind, name string) algorithm {
	i := slices.IndexFunc(algorithms[k], func(a algorithm) bool { return a.name == name })
	if i < 0 {
		return algorithm{}
	}
	return algorithms[k][i]
}

// Make returns the schedule of an algorithm for a number of ranks. Only Rooted kinds use root.
func Make(k Kind, name string, ranks, root int) (*Schedule, error) {
	made := find(k, name)
	if made.make == nil {
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
	return made.make(k, ranks, root), nil
}
