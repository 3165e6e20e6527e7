package engine

import (
	"errors"
	"fmt"
	"os"
	"time"

	"railbed/testbed/plan"
	"railbed/testbed/plan/rates"
	"railbed/testbed/spec"
	"railbed/workloads/flows"
	"railbed/workloads/worker"
)

// ErrRates says that a file of rates that a workload names cannot be used.
var ErrRates = errors.New("rates of a workload")

// carried is what a step's ranks send over a transport.
type carried struct {
	at string // in the file
	*spec.Carriage
	plan      *plan.Plan // of the step's own ranks
	pattern   rates.Options
	algorithm string
}

// carriedBy is that of a step, of which the job or the schedule is where it has one. Steps
// of other kinds carry nothing.
func carriedBy(p *plan.Plan, i int, step *spec.Step, job trainingJob, schedule *flows.Schedule) carried {
	at := fmt.Sprintf("steps[%d].", i)
	switch w, t, m := step.Workload, step.Training, step.Messages; {
	case w != nil:
		return carried{at + "workload", &w.Carriage, p, pattern(w), w.Algorithm}
	case t != nil:
		of := *p
		of.Ranks = job.ranks
		return carried{at + "training", &t.Carriage, &of, among(job.program.Pairs(), &t.Carriage), ""}
	case m != nil:
		return carried{at + "messages", &m.Carriage, p, among(schedule.Pairs(), &m.Carriage), ""}
	}
	return carried{Carriage: &spec.Carriage{}}
}

// among is what is sent between pairs.
func among(pairs [][2]int, c *spec.Carriage) rates.Options {
	o := rates.Options{Family: c.Version(), Pairs: []rates.Pair{}}
	for _, pair := range pairs {
		o.Pairs = append(o.Pairs, rates.Pair{From: pair[0], To: pair[1]})
	}
	return o
}

// offlineRates are the rates of steps with control: offline, by step: read from their
// files, or computed.
func offlineRates(o *Options, jobs map[int]trainingJob, schedules map[int]*flows.Schedule) (map[int]*rates.File, error) {
	found := make(map[int]*rates.File)
	for i := range o.File.Steps {
		c := carriedBy(o.Plan, i, &o.File.Steps[i], jobs[i], schedules[i])
		if c.RD == nil || c.RD.Control != spec.ControlOffline {
			continue
		}
		var file *rates.File
		var err error
		if c.RD.Rates == "" {
			file, err = rates.Compute(c.plan, c.pattern)
		} else {
			file, err = readRates(o, c.RD.Rates, len(c.plan.Ranks))
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w: %w", o.File.Source.Pos(c.at+".rd.control"), ErrRates, err)
		}
		if c.algorithm == worker.Direct && len(file.Phases) > 1 {
			return nil, fmt.Errorf("%v: %w: %d phases, and %s has one: want algorithm: %s", o.File.Source.Pos(c.at+".algorithm"), ErrRates, len(file.Phases), worker.Direct, worker.Pairwise)
		}
		found[i] = file
	}
	return found, nil
}

// roundTrip is the longest of them over rd without other traffic, 0 where the workers
// are to measure it.
func (c *carried) roundTrip() time.Duration {
	if c.RD == nil {
		return 0
	}
	trip, err := rates.RoundTrip(c.plan, c.pattern)
	if err != nil {
		return 0
	}
	return trip
}

// job is one of the step's ranks over its transport, whatever they do.
func (s *session) job(index int, name, transport string) worker.Job {
	step, ordinal := &s.file.Steps[index], s.ordinal(index)
	c := carriedBy(s.plan, index, step, s.trainings[index], s.schedules[index])
	return worker.Job{
		Name: name, Ranks: c.plan.Ranks, Transport: transport, Family: c.Version(), RD: c.RD, RoCE: c.RoCE, Rates: s.rates[index], Secret: s.secretOf(c.RD), RoundTrip: c.roundTrip(),
		BasePort: s.basePort(ordinal), Ordinal: ordinal + 1, Dilation: s.plan.Dilation, Sends: worker.SendsOf(s.plan, c.plan.Ranks),
	}
}

// pattern is what a workload sends, to whom.
func pattern(w *spec.Workload) rates.Options {
	o := rates.Options{Pattern: rates.Ring, Family: w.Version()}
	switch w.Algorithm {
	case spec.Ring:
	case spec.Tree, spec.HalvingDoubling:
		o.Pattern = w.Algorithm
	default: // no two ranks that might not send to each other
		o.Pattern = rates.AllToAll
		if w.Algorithm == worker.Pairwise {
			o.Method = rates.ConflictFree
		}
	}
	return o
}

// readRates reads a file for so many ranks.
func readRates(o *Options, name string, ranks int) (*rates.File, error) {
	name = besideFile(o, name)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := rates.Read(name, text)
	if err == nil && file.Ranks != ranks {
		err = fmt.Errorf("%s is for %d ranks, and here are %d", name, file.Ranks, ranks)
	}
	return file, err
}
