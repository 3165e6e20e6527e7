package runner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
	"railbed/workloads/worker"
)

// ErrRates is the error of a workload whose rates cannot be used.
var ErrRates = errors.New("rates of a workload")

// carried is the traffic that a step's ranks send over a transport.
type carried struct {
	at string // path in the file
	*spec.Carriage
	plan      *plan.Plan // of the step's own ranks
	pattern   allocation.Options
	back      *allocation.Options // of the messages back from experts, if they have their own rates
	algorithm string
}

// stepRates are the rates of a step.
type stepRates struct {
	*allocation.File
	back *allocation.File // nil if they are the same
}

// carriedBy returns the traffic of a step. job is set for a training step and schedule for a
// messages step. Steps of other kinds carry nothing.
func carriedBy(p *plan.Plan, i int, step *spec.Step, job trainingJob, schedule *flows.Schedule) carried {
	at := fmt.Sprintf("steps[%d].", i)
	switch w, t, m := step.Workload, step.Training, step.Messages; {
	case w != nil:
		c := carried{at + "workload", &w.Carriage, p, pattern(w), nil, w.Algorithm}
		c.weigh(w)
		return c
	case t != nil:
		of := *p
		of.Ranks = job.ranks
		o := among(job.program.Pairs(), &t.Carriage)
		o.Demand = job.program.Demand()
		return carried{at + "training", &t.Carriage, &of, o, nil, ""}
	case m != nil:
		return carried{at + "messages", &m.Carriage, p, among(schedule.Pairs(), &m.Carriage), nil, ""}
	}
	return carried{Carriage: &spec.Carriage{}}
}

// weigh sets the number of bytes of each pair of an all-to-all, if they are known.
func (c *carried) weigh(w *spec.Workload) {
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
		exchanges := worker.Matrices(w.MoE.Config(n, c.plan.Seed))
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

// offlineRates returns the rates of steps with control: offline, by step, read from their files or
// computed.
func offlineRates(o *Options, jobs map[int]trainingJob, schedules map[int]*flows.Schedule) (map[int]stepRates,
	error) {
	found, wrong := make(map[int]stepRates), &findings{o: o}
	for i := range o.File.Steps {
		step := &o.File.Steps[i]
		w := step.Workload
		if step.Training != nil && jobs[i].program == nil || step.Messages != nil && schedules[i] == nil ||
			w != nil && w.MoE != nil && w.MoE.Config(len(o.Plan.Ranks), o.Plan.Seed).Check() != nil {
			continue // which is reported elsewhere
		}
		c := carriedBy(o.Plan, i, step, jobs[i], schedules[i])
		if c.RD == nil || c.RD.Control != spec.ControlOffline {
			continue
		}
		var file, back *allocation.File
		var err error
		if c.RD.Rates == "" {
			if file, err = allocation.Compute(c.plan, c.pattern); err == nil && c.back != nil {
				back, err = allocation.Compute(c.plan, *c.back)
			}
		} else {
			file, err = readRates(o, c.RD.Rates, len(c.plan.Ranks))
		}
		at := c.at + ".rd.control"
		if err == nil && c.algorithm == worker.Direct && len(file.Phases) > 1 {
			at, err = c.at+".algorithm", fmt.Errorf("%d phases, and %s has one: want algorithm: %s",
				len(file.Phases), worker.Direct, worker.Pairwise)
		}
		if errors.As(err, new(*fileError)) {
			at = c.at
		}
		if wrong.wrong(ErrRates, at, err); err == nil {
			found[i] = stepRates{file, back}
		}
	}
	return found, wrong.err()
}

// Rates returns the rates of the step with the given name, and the rates of the messages back from
// experts, or nil if these are the same. The step must have control: offline. Otherwise the error
// wraps ErrRates.
func Rates(o Options, name string) (there, back *allocation.File, err error) {
	jobs, err := trainings(&o)
	if err != nil {
		return nil, nil, err
	}
	sent, err := schedules(&o)
	if err != nil {
		return nil, nil, err
	}
	all, err := offlineRates(&o, jobs, sent)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for i, found := range all {
		own := o.File.Steps[i].Work()
		if own == name {
			return found.File, found.back, nil
		}
		names = append(names, own)
	}
	slices.Sort(names)
	return nil, nil, fmt.Errorf("%w: no pattern or step %q; want a pattern (%s) or a step with "+
		"\"control: offline\" (%s)", ErrRates, name, strings.Join(allocation.Patterns(), ", "),
		cmp.Or(strings.Join(names, ", "), "the file has none"))
}

// roundTrip returns the longest round trip over rd without other traffic, or 0 if the workers
// should measure it.
func (c *carried) roundTrip() time.Duration {
	if c.RD == nil {
		return 0
	}
	trip, err := allocation.RoundTrip(c.plan, c.pattern)
	if err != nil {
		return 0
	}
	return trip
}

// job returns a worker.Job with the fields that do not depend on the kind of the step.
func (s *session) job(index int, name, transport string) worker.Job {
	step, ordinal := &s.file.Steps[index], s.ordinal(index)
	c := carriedBy(s.plan, index, step, s.trainings[index], s.schedules[index])
	return worker.Job{
		Name:      name,
		Ranks:     c.plan.Ranks,
		Transport: transport,
		Family:    c.Version(),
		RD:        c.RD,
		RoCE:      c.RoCE,
		Rates:     s.rates[index].File,
		Secret:    s.secretOf(c.RD),
		RoundTrip: c.roundTrip(),
		BasePort:  s.basePort(ordinal),
		Ordinal:   ordinal + 1,
		Dilation:  s.plan.Dilation,
		Sends:     worker.SendsOf(s.plan, c.plan.Ranks),
		Silence:   s.silence,
	}
}

// pattern returns between which ranks a workload sends.
func pattern(w *spec.Workload) allocation.Options {
	o := allocation.Options{Pattern: allocation.Ring, Family: w.Version()}
	switch w.Algorithm {
	case spec.Ring:
	case spec.Tree, spec.HalvingDoubling:
		o.Pattern = w.Algorithm
	default: // includes all pairs that might send to each other
		o.Pattern = allocation.AllToAll
		if w.Algorithm == worker.Pairwise {
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
		err = fmt.Errorf("%s is for %d ranks, and here are %d", name, file.Ranks, ranks)
	}
	return file, inFile(key, err)
}
