// Package allocation computes how fast ranks may send to each other, before anything
// runs: from a plan's topology and the pattern of a collective. It is pure.
//
// There are two methods. Max-min shares every link fairly among all pairs of the
// pattern at once, by progressive filling (Bertsekas and Gallager, "Data Networks",
// 6.5.2). Conflict-free cuts the pattern into phases in which no NIC sends to, or
// receives from, more than one, as few as there can be (König, 1916: as many as the
// busiest NIC has pairs), and shares what is left to share in each of them.
//
// A pair loads a link by the share of its packets that take it: reliable datagrams
// are sprayed over source ports, which switches hash over the next hops of a route,
// by their weights. So the rates hold for many paths of equal share, and not for one
// flow that is hashed once.
package allocation

import (
	"fmt"
	"slices"
	"strings"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
)

// Pair is one rank that sends to another.
type Pair struct{ From, To int }

// Patterns of collectives.
const (
	Ring     = "ring"       // each rank sends to the next one
	AllToAll = "all-to-all" // each rank sends to every other one
	// Each rank sends to those to whom an all-reduce by that algorithm does.
	Tree            = "tree"
	HalvingDoubling = "halving-doubling"
)

// Patterns are all.
func Patterns() []string { return []string{Ring, AllToAll, Tree, HalvingDoubling} }

// Methods.
const (
	MaxMin       = "max-min"
	ConflictFree = "conflict-free"
)

// Pairs are the pairs of a pattern over so many ranks.
func Pairs(pattern string, ranks int) ([]Pair, error) {
	var pairs []Pair
	switch pattern {
	case Ring:
		for i := range ranks {
			if next := (i + 1) % ranks; next != i {
				pairs = append(pairs, Pair{i, next})
			}
		}
	case AllToAll:
		for shift := 1; shift < ranks; shift++ {
			for i := range ranks {
				pairs = append(pairs, Pair{i, (i + shift) % ranks})
			}
		}
	case Tree, HalvingDoubling:
		s, err := schedule.Make(schedule.AllReduce, pattern, ranks, 0)
		if err != nil {
			return nil, fmt.Errorf("rates: %w", err)
		}
		for _, pair := range s.Pairs() {
			pairs = append(pairs, Pair{pair[0], pair[1]})
		}
	default:
		return nil, fmt.Errorf("rates for %q: want %s", pattern, strings.Join(Patterns(), ", "))
	}
	return pairs, nil
}

// Options say what is computed. Pattern or Pairs are required.
type Options struct {
	Pattern string
	// Pairs are in place of a pattern.
	Pairs []Pair
	// Demand is how much each of Pairs has to carry: their rates are in proportion to it where
	// they share a link, so that those who share the one with most to do end together, and
	// the others no later. Default: the same for all.
	Demand []units.Bytes
	// Method is MaxMin, the default, or ConflictFree.
	Method string
	// Headroom is the share of each link that is left to acknowledgements and to
	// what is sent again. Default 2 %; use Exact for none.
	Headroom units.Ratio
	Exact    bool
	// Family is 4, the default, or 6: whose routes count.
	Family int
}

func (o Options) pairs(ranks int) ([]Pair, error) {
	if o.Pairs != nil {
		return o.Pairs, nil
	}
	return Pairs(o.Pattern, ranks)
}

// Compute makes the rates of all ranks of a plan.
func Compute(p *plan.Plan, o Options) (*File, error) {
	if o.Method == "" {
		o.Method = MaxMin
	}
	if o.Headroom.IsZero() && !o.Exact {
		o.Headroom = units.Ratio{Num: 2, Den: 100}
	}
	if o.Headroom.Float() >= 1 {
		return nil, fmt.Errorf("compute rates: headroom %v leaves nothing", o.Headroom)
	}
	pairs, err := o.pairs(len(p.Ranks))
	if err != nil {
		return nil, fmt.Errorf("compute %w", err)
	}
	n, err := newNetwork(p, pairs, o)
	if err != nil {
		return nil, fmt.Errorf("compute rates: %w", err)
	}
	if o.Demand != nil {
		if o.Pairs == nil || len(o.Demand) != len(pairs) {
			return nil, fmt.Errorf("compute rates: %d demands for %d pairs", len(o.Demand), len(pairs))
		}
		n.weigh(pairs, o.Demand)
	}
	file := &File{Format: Format, Testbed: p.Name, Ranks: len(p.Ranks), Pattern: o.Pattern, Method: o.Method,
		Headroom: o.Headroom}
	switch o.Method {
	case MaxMin:
		file.Phases = []Phase{n.phase(n.crossing(pairs))}
	case ConflictFree:
		for _, matching := range Matchings(n.crossing(pairs), n.sender, n.receiver) {
			file.Phases = append(file.Phases, n.phase(matching))
		}
	default:
		return nil, fmt.Errorf("compute rates by %q: want %s or %s", o.Method, MaxMin, ConflictFree)
	}
	return file, nil
}

// crossing are the pairs that use any link: ranks of one node do not.
func (n *network) crossing(pairs []Pair) []Pair {
	return slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return len(n.uses[p]) == 0 })
}

// leastDemand is that of a pair that has next to nothing to carry: else its rate would hold
// up what it has by more than a packet takes, and be too small to compute.
const leastDemand = 4 << 10

// weigh makes rates follow what pairs have to carry: a weight of 1 is the most.
func (n *network) weigh(pairs []Pair, demand []units.Bytes) {
	n.weights = make(map[Pair]float64, len(pairs))
	most := max(slices.Max(demand), leastDemand)
	for i, pair := range pairs {
		n.weights[pair] = float64(max(demand[i], leastDemand, most/mostWeights)) / float64(most)
	}
}

// mostWeights bounds how many times as fast as another a pair may be for its demand.
const mostWeights = 1 << 16

func (n *network) weight(p Pair) float64 {
	if n.weights == nil {
		return 1
	}
	return n.weights[p]
}

// roundingError is what a rate may lack of a whole number of bit/s by the
// arithmetic alone.
const roundingError = 1e-3

// phase is the fair rates of pairs that send at the same time.
func (n *network) phase(pairs []Pair) Phase {
	loads := make([][]Use, len(pairs))
	for i, pair := range pairs {
		for _, u := range n.uses[pair] {
			loads[i] = append(loads[i], Use{u.Link, u.Share * n.weight(pair)})
		}
	}
	filled, tight := Fill(n.capacity, loads)
	ph := Phase{Rates: []Entry{}}
	for i, pair := range pairs {
		ph.Rates = append(ph.Rates, Entry{From: pair.From, To: pair.To,
			Rate: max(units.Rate(filled[i]*n.weight(pair)+roundingError), 1), Bottleneck: n.names[tight[i]]})
	}
	slices.SortFunc(ph.Rates, func(a, b Entry) int {
		if a.From != b.From {
			return a.From - b.From
		}
		return a.To - b.To
	})
	return ph
}
