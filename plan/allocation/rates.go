// Package allocation computes the rates at which ranks may send to each other, before a run, from a
// plan's topology and the pattern of a collective. The package is pure.
//
// There are two methods. Max-min shares every link fairly among all pairs of the pattern at once,
// by progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2). Conflict-free divides
// the pattern into phases. In a phase a NIC sends to at most one NIC and receives from at most one.
// The number of phases is the minimum: the number of pairs of the busiest NIC (König, 1916). Within
// a phase the links are shared max-min fairly.
//
// A pair loads a link by the share of its packets that take the link. Reliable datagrams are
// sprayed over source ports. Switches hash these over the next hops of a route, by their weights.
// The rates therefore hold for many paths of equal share, and not for a single flow that is hashed
// once.
package allocation

import (
	"fmt"
	"slices"
	"strings"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
)

// Pair is a sending rank and a receiving rank.
type Pair struct{ From, To int }

// Patterns of collectives.
const (
	Ring     = "ring"       // each rank sends to the next rank
	AllToAll = "all-to-all" // each rank sends to every other rank
	// Each rank sends to the same ranks as in an all-reduce by that algorithm.
	Tree            = "tree"
	HalvingDoubling = "halving-doubling"
)

// Patterns returns all patterns.
func Patterns() []string { return []string{Ring, AllToAll, Tree, HalvingDoubling} }

// Methods of computing rates.
const (
	MaxMin       = "max-min"
	ConflictFree = "conflict-free"
)

// Pairs returns the pairs of a pattern over a number of ranks.
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

// Options are the parameters of Compute. Pattern or Pairs is required.
type Options struct {
	Pattern string
	// Pairs replaces a pattern.
	Pairs []Pair
	// Demand is the number of bytes of each of Pairs. On a shared link the rates are in proportion
	// to it, so pairs on the busiest link finish together and the others no later. Default: the
	// same for all.
	Demand []units.Bytes
	// Method is MaxMin, the default, or ConflictFree.
	Method string
	// Headroom is the share of each link that is left for acknowledgements and retransmissions.
	// Default 2 %. Use Exact for none.
	Headroom units.Ratio
	Exact    bool
	// Family is the address family whose routes are used: 4, the default, or 6.
	Family int
}

func (o Options) pairs(ranks int) ([]Pair, error) {
	if o.Pairs != nil {
		return o.Pairs, nil
	}
	return Pairs(o.Pattern, ranks)
}

// Compute computes the rates of all ranks of a plan.
func Compute(p *plan.Plan, o Options) (*File, error) {
	if o.Method == "" {
		o.Method = MaxMin
	}
	if o.Headroom.IsZero() && !o.Exact {
		o.Headroom = units.Ratio{Num: 2, Den: 100}
	}
	if o.Headroom.Float() >= 1 {
		return nil, fmt.Errorf("compute rates: headroom %v leaves no rate: want less than 100%%", o.Headroom)
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
			return nil, fmt.Errorf("compute rates: %d demands for %d pairs, want one each", len(o.Demand),
				len(pairs))
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

// Bytes returns the bytes of each of Pairs, or nil if all pairs carry the same number.
func (o Options) Bytes() map[Pair]units.Bytes {
	if o.Demand == nil {
		return nil
	}
	bytes := make(map[Pair]units.Bytes, len(o.Pairs))
	for i, pair := range o.Pairs {
		bytes[pair] = o.Demand[i]
	}
	return bytes
}

// Mean returns the rate in bit/s at which all pairs together send on average. Each pair sends its bytes at
// its rate, and a phase ends with its slowest pair. Pairs of ranks on one node do not count. Without bytes
// all pairs send the same number.
func (f *File) Mean(bytes map[Pair]units.Bytes) float64 {
	total, took := 0.0, 0.0
	for _, phase := range f.Phases {
		slowest := 0.0
		for _, entry := range phase.Rates {
			of := 1.0
			if bytes != nil {
				of = float64(bytes[Pair{entry.From, entry.To}])
			}
			total += of
			slowest = max(slowest, of/float64(entry.Rate))
		}
		took += slowest
	}
	if took == 0 {
		return 0
	}
	return total / took
}

// crossing returns the pairs that use a link. Pairs of ranks on one node use none.
func (n *network) crossing(pairs []Pair) []Pair {
	return slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return len(n.uses[p]) == 0 })
}

// leastDemand is the demand assumed for a pair with less. With a smaller demand the rate of the
// pair would be too small to compute, and would delay its bytes by more than the time of a packet.
const leastDemand = 4 << 10

// weigh sets weights in proportion to the demands of pairs. The largest demand has weight 1.
func (n *network) weigh(pairs []Pair, demand []units.Bytes) {
	n.weights = make(map[Pair]float64, len(pairs))
	most := max(slices.Max(demand), leastDemand)
	for i, pair := range pairs {
		n.weights[pair] = float64(max(demand[i], leastDemand, most/mostWeights)) / float64(most)
	}
}

// mostWeights bounds the ratio of the weights of two pairs.
const mostWeights = 1 << 16

func (n *network) weight(p Pair) float64 {
	if n.weights == nil {
		return 1
	}
	return n.weights[p]
}

// roundingError is the rounding error of the arithmetic by which a rate may be below a whole number
// of bit/s.
const roundingError = 1e-3

// phase computes the fair rates of pairs that send at the same time.
func (n *network) phase(pairs []Pair) Phase {
	loads := make([][]use, len(pairs))
	for i, pair := range pairs {
		for _, u := range n.uses[pair] {
			loads[i] = append(loads[i], use{u.Link, u.Share * n.weight(pair)})
		}
	}
	filled, tight := fill(n.capacity, loads)
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
