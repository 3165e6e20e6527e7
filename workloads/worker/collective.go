package worker

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railbed/internal/element"
	"railbed/plan"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/aggregation"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Collective is a collective operation on the job's buffer.
type Collective struct{}

func (Collective) complete(*Job, reporter) {}

// check implements Work. It checks that the algorithm exists for the job's kind and can do what the
// job asks of it.
func (Collective) check(j *Job, problem reporter) {
	if j.Kind == spec.KindSGD || j.Kind == spec.KindMoE {
		problem("kind %s needs Work, which is missing", j.Kind)
	}
	j.checkAlgorithm(problem)
}

func (j *Job) checkAlgorithm(problem reporter) {
	if !known(j.Kind, j.Algorithm) {
		problem("%s by %s: no such algorithm, want %s", j.Kind, j.Algorithm,
			cmp.Or(strings.Join(spec.Algorithms(j.Kind), " or "), "another kind"))
	}
	switch j.Algorithm {
	case schedule.HyperCube:
		if _, err := schedule.Make(schedule.Kind(j.Kind), j.Algorithm, len(j.Ranks), 0); err != nil {
			problem("%w", err)
		}
	case schedule.Hierarchical:
		if _, err := schedule.MakeHierarchical(schedule.Kind(j.Kind), plan.Rails(j.Ranks)); err != nil {
			problem("%w", err)
		}
	case schedule.MSCCL:
		if err := j.CheckSchedule(); err != nil {
			problem("%w", err)
		} else if j.InPlace && j.Schedule.OutOfPlace {
			problem("%s in place: the algorithm works only out of place", j.Schedule.Algorithm)
		}
	}
	mayLose := j.Kind == spec.AllReduce && j.Algorithm == schedule.Ring
	if j.Kind == spec.AllToAll && j.Algorithm != schedule.MSCCL && j.InPlace || !mayLose && j.RD.MayDrop() {
		problem("%s by %s in place, or with droppable bytes: want neither", j.Kind, j.Algorithm)
	}
	if j.offline() && !spec.HasRates(j.Kind, j.Algorithm) {
		problem("control: offline of %s, for which no rates are computed: want another control", j.Algorithm)
	}
}

// known reports whether a collective has such an algorithm.
func known(kind, algorithm string) bool {
	return slices.Contains(spec.Algorithms(kind), algorithm)
}

func (Collective) of(j *Job, i int) rank.Work { return j.collective(i) }

func (Collective) results(j *Job) Results {
	if j.Kind == spec.Barrier {
		return barrier{}
	}
	return nil
}

// wanted implements Work.
func (Collective) wanted(j *Job, config *rank.Config, w *Wanted) error {
	c := &collectiveConfig{config, j.collective(config.Rank)}
	if c.Algorithm == schedule.InNetwork {
		w.Switch = c.throughSwitch()
		return nil
	}
	all, err := c.algorithms()
	if err != nil {
		return err
	}
	for size, operations := range operationsOf(config) {
		for channel, algorithm := range all[size] {
			for rank := range c.Ranks {
				w.add(rank, channel, len(all[size]), collective.Amounts(algorithm, rank, operations))
			}
		}
	}
	return nil
}

func (Collective) measure(j *Job, row *perf.Row) bool {
	if schedule.Kind(j.Kind).Shares() { // as in nccl-tests
		row.Count /= len(j.Ranks)
	}
	return true
}

// collectiveWork is a rank's part in a collective: the collective, and the algorithm that carries it out.
type collectiveWork struct {
	Kind      string       `json:"kind"`
	Algorithm string       `json:"algorithm"`
	Root      int          `json:"root,omitempty"`
	Type      element.Type `json:"type"`
	Op        element.Op   `json:"op"`
	// Skew, Seed and the rank's Phases are set for an all-to-all. Seed is also set for an SGD
	// training.
	Skew   int                `json:"skew,omitempty"`
	Seed   uint64             `json:"seed,omitempty"`
	Phases []collective.Phase `json:"phases,omitempty"`
	// Chosen are the algorithms for the sizes of the buffer, if Algorithm is auto.
	Chosen []string `json:"chosen,omitempty"`
	// Rails is set for algorithm hierarchical, which auto may choose, Schedule for msccl, and
	// Aggregator for in-network.
	Rails      schedule.Rails     `json:"rails,omitempty"`
	Schedule   *schedule.Schedule `json:"schedule,omitempty"`
	Aggregator *aggregatorConfig  `json:"aggregator,omitempty"`
}

// aggregatorConfig is the part of a rank's work for in-network aggregation.
type aggregatorConfig struct {
	Config aggregation.Config `json:"config"`
	Addr   netip.Addr         `json:"addr"`
}

// collective returns the part of rank i in the job's collective.
func (j Job) collective(i int) collectiveWork {
	w := collectiveWork{Kind: j.Kind, Algorithm: j.Algorithm, Root: j.Root, Type: j.Type, Op: j.Op,
		Skew: j.Skew, Seed: j.Seed}
	switch j.Algorithm {
	case schedule.Hierarchical:
		w.Rails = plan.Rails(j.Ranks)
	case schedule.MSCCL:
		w.Schedule = j.Schedule
	case schedule.Auto:
		w.Rails = plan.Rails(j.Ranks)
		for _, size := range j.sizes() {
			w.Chosen = append(w.Chosen, plan.AlgorithmFor(j.Kind, j.Algorithm, j.Ranks, j.channels(), size))
		}
	}
	if j.Kind == spec.AllToAll && j.Algorithm != schedule.MSCCL {
		w.Phases = j.phases(i)
	}
	if j.Aggregator != nil {
		w.Aggregator = j.aggregator(i)
	}
	return w
}

// collectiveConfig is a rank's part in a collective with the rank's configuration.
type collectiveConfig struct {
	*rank.Config
	collectiveWork
}

// wrapper makes the part in operations of a size from the collective's own part and the rank's memory.
type wrapper = func(rank.Part, buffers) (rank.Part, error)

// Run implements rank.Work.
func (c collectiveWork) Run(ctx context.Context, w *rank.Process) error {
	return c.runWrapped(ctx, w, func(p rank.Part, _ buffers) (rank.Part, error) { return p, nil })
}

// runWrapped does the operations of a collective with the parts that wrap makes.
func (c collectiveWork) runWrapped(ctx context.Context, w *rank.Process, wrap wrapper) error {
	config := &collectiveConfig{&w.Config, c}
	switch {
	case !known(c.Kind, c.Algorithm):
		return fmt.Errorf("this worker cannot do %s by %s", c.Kind, c.Algorithm)
	case c.Algorithm == schedule.InNetwork:
		return config.aggregate(ctx, w, wrap)
	}
	return w.ThroughLanes(func() error { return config.exchange(ctx, w, wrap) })
}

// exchange exchanges memory handles and addresses with the other ranks and does the operations.
func (c *collectiveConfig) exchange(ctx context.Context, w *rank.Process, wrap wrapper) error {
	all, err := c.algorithms()
	if err != nil {
		return err
	}
	memory := allocateLanes(c.Rank, all)
	tables, err := w.Meet(ctx, func(i int, l *rank.Lane) (*rank.Rendezvous, error) {
		handles, err := l.Register(memory[i])
		return &rank.Rendezvous{Input: handles.Input, Output: handles.Output, Work: handles.Work}, err
	})
	if err != nil {
		return err
	}
	return w.Do(ctx, func(size int) (rank.Part, []byte, error) {
		made, err := join(w, tables, memory, all[size])
		if err != nil {
			return nil, nil, err
		}
		used := view(memory[0], all[size][0].Lengths(c.Rank))
		p, err := wrap(made, used)
		return p, used.Output, err
	})
}
