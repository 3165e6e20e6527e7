package runner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/allocation"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/training/moe"
	"railbed/workloads/worker"
)

// ErrRates is the error of a workload whose rates cannot be used.
var ErrRates = errors.New("rates of a workload")

// weigh sets the number of bytes of each pair of an all-to-all, if they are known.
func (c *collectiveStep) weigh() {
	w := c.spec
	if c.pattern.Pattern != allocation.AllToAll {
		return
	}
	var matrices []collective.Matrix
	each := worker.WordBytes
	switch n := len(c.plan.Ranks); {
	case w.Kind == spec.AllToAll && w.Skew > 0 && w.Sizes == nil:
		each = element.Type(w.Type).Size()
		matrices = []collective.Matrix{collective.Skewed(n, int(w.Size)/each, w.Skew, c.plan.Seed)}
	case w.Kind == spec.KindMoE:
		exchanges := worker.Matrices(moe.ConfigOf(w.MoE, n, c.plan.Seed))
		matrices = exchanges[:]
	}
	for i, m := range matrices {
		o := c.pattern
		o.Pairs, o.Demand = nil, nil
		for from, row := range m {
			for to, count := range row {
				if from != to {
					o.Pairs, o.Demand = append(o.Pairs, allocation.Pair{From: from, To: to}),
						append(o.Demand, units.Bytes(count*each))
				}
			}
		}
		if i == 0 {
			c.pattern = o
		} else {
			c.back = &o
		}
	}
}

// among returns the options for traffic between pairs.
func among(pairs [][2]int, c *spec.Carriage) allocation.Options {
	o := allocation.Options{Family: c.Version(), Pairs: []allocation.Pair{}}
	for _, pair := range pairs {
		o.Pairs = append(o.Pairs, allocation.Pair{From: pair[0], To: pair[1]})
	}
	return o
}

// planRates sets the rates of a step with control: offline. It reads them from a file or computes them.
// algorithm is the algorithm of a collective, or "".
func (p *preparation) planRates(r *ranksStep, algorithm string) {
	rd := r.Carriage.RD
	if rd == nil || rd.Control != spec.ControlOffline {
		return
	}
	var err error
	if rd.Rates == "" {
		if r.rates, err = allocation.Compute(r.plan, r.pattern); err == nil && r.back != nil {
			r.ratesBack, err = allocation.Compute(r.plan, *r.back)
		}
	} else {
		r.rates, err = readRates(p.o, rd.Rates, len(r.plan.Ranks))
	}
	at := r.at + ".rd.control"
	if err == nil && algorithm == schedule.Direct && len(r.rates.Phases) > 1 {
		at, err = r.at+".algorithm", fmt.Errorf("the rates have %d phases, and algorithm: %s has one: want "+
			"algorithm: %s", len(r.rates.Phases), schedule.Direct, schedule.Pairwise)
	}
	if errors.As(err, new(*fileError)) {
		at = r.at
	}
	p.wrong(ErrRates, at, err)
}

// Rates returns the rates of the step with the given name, and the rates of the messages back from
// experts, or nil if these are the same. The step must have control: offline. Otherwise the error
// wraps ErrRates.
func Rates(o Options, name string) (there, back *allocation.File, err error) {
	p := &preparation{findings: &findings{o: &o}}
	steps := p.steps()
	if err := p.err(); err != nil {
		return nil, nil, err
	}
	var names []string
	for _, s := range steps {
		r, is := s.(ranked)
		switch {
		case !is || r.ranks().rates == nil:
		case s.frame().Name == name:
			return r.ranks().rates, r.ranks().ratesBack, nil
		default:
			names = append(names, s.frame().Name)
		}
	}
	slices.Sort(names)
	return nil, nil, fmt.Errorf("%w: no pattern or step %q; want a pattern (%s) or a step with "+
		"\"control: offline\" (%s)", ErrRates, name, strings.Join(allocation.Patterns(), ", "),
		cmp.Or(strings.Join(names, ", "), "the file has none"))
}

// pattern returns between which ranks a workload sends.
func pattern(w *spec.Workload) allocation.Options {
	o := allocation.Options{Pattern: allocation.Ring, Family: w.Version()}
	switch w.Algorithm {
	case schedule.Ring:
	case schedule.Tree, schedule.HalvingDoubling:
		o.Pattern = w.Algorithm
	default: // includes all pairs that might send to each other
		o.Pattern = allocation.AllToAll
		if w.Algorithm == schedule.Pairwise {
			o.Method = allocation.ConflictFree
		}
	}
	return o
}

// readRates reads a file of rates for the given number of ranks.
func readRates(o *Options, name string, ranks int) (*allocation.File, error) {
	const key = "rd.rates"
	name, text, err := o.read(key, name)
	if err != nil {
		return nil, err
	}
	file, err := allocation.Read(name, text)
	if err == nil && file.Ranks != ranks {
		err = fmt.Errorf("%s is for %d ranks, and the testbed has %d", name, file.Ranks, ranks)
	}
	return file, inFile(key, err)
}
