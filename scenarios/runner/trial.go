package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Trial is the traffic of a collective at the rates of the file's links, beside the traffic that this machine
// carried when the links had no limits. Rates are in bit/s of frames, of all NICs of nodes together.
type Trial struct {
	Name      string  `json:"name"`
	Transport string  `json:"transport"`
	Asked     float64 `json:"asked_bit_s"`
	Carried   float64 `json:"carried_bit_s"`
	// CPUs is the share of the processors' time in which they worked, at the rate Carried.
	CPUs float64 `json:"cpus"`
}

// calmLoad is the greatest load at which frames are sent when they are due, or soon after: see
// docs/explanation/notes/processor-time.md.
const calmLoad = 0.6

// Load is the ratio of the traffic at the links' rates to the traffic that the machine carried.
func (t *Trial) Load() float64 { return t.Asked / t.Carried }

// KeepsUp reports whether the machine is expected to keep up. Frames may still be later than the smallest
// time of links that are fast or short.
func (t *Trial) KeepsUp() bool { return t.Load() <= calmLoad }

// Advice returns a share of the links' rates, and a dilation. With either the machine would keep up.
func (t *Trial) Advice() (rates float64, dilation uint64) {
	return calmLoad / t.Load(), uint64(t.Load()/calmLoad) + 1
}

const (
	// trialTime is how long the operations of a trial take, and trials is how many are made to find their
	// number.
	trialTime = 2 * time.Second
	trials    = 4
	// trialRate is the rate of soft links without limits. Kernel links have no shaper then.
	trialRate = units.Rate(100e9) // bit/s
)

// Trials runs each collective of a file for about two seconds on the file's testbed, without the limits of
// its links. It records packets where the file's first step does. Barriers, and collectives in switches, have
// no trial, as they do not send at the rate of links. It returns the errors of Run, and an error if a run
// fails.
func Trials(ctx context.Context, o Options) ([]Trial, error) {
	steps, err := prepare(&o)
	if err != nil {
		return nil, err
	}
	all := []Trial{}
	for _, s := range steps {
		c, is := s.(*collectiveStep)
		if !is || c.spec.Kind == spec.Barrier || c.Transport == spec.InSwitch {
			continue
		}
		t := Trial{Name: c.Name, Transport: c.Transport}
		if t.Asked, err = asked(c); err != nil {
			return nil, err
		}
		load, err := o.trial(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("trial of %s: %w", c.Name, err)
		}
		t.Carried, t.CPUs = load.Sent, load.CPUs
		all = append(all, t)
	}
	return all, nil
}

// asked returns the rate at which all ranks together send with fair shares of the links. If the bytes of each
// pair are known, it is the mean of an operation, whose phases take as long as their slowest pair. Otherwise
// it is the rate at which all pairs that may send to each other do so at once.
func asked(c *collectiveStep) (rate float64, err error) {
	pattern := c.pattern
	pattern.Exact = true
	file, err := allocation.Compute(c.plan, pattern)
	if err != nil {
		return 0, fmt.Errorf("rates of %s: %w", c.Name, err)
	}
	exchange := c.spec.Algorithm == schedule.Direct || c.spec.Algorithm == schedule.Pairwise
	if exchange || pattern.Pattern == allocation.Ring || pattern.Pattern == allocation.Tree {
		return file.Mean(pattern.Bytes()), nil
	}
	for _, phase := range file.Phases {
		sum := 0.0
		for _, pair := range phase.Rates {
			sum += float64(pair.Rate)
		}
		rate = max(rate, sum)
	}
	return rate, nil
}

// trial runs a collective without limits of links, with as many operations as take about trialTime.
func (o Options) trial(ctx context.Context, c *collectiveStep) (*report.Load, error) {
	file, p, w := *o.File, *o.Plan, *c.spec
	p.Links = slices.Clone(p.Links)
	for i := range p.Links {
		for _, d := range []*plan.Direction{&p.Links[i].AToB, &p.Links[i].BToA} {
			if d.Rate = trialRate; !p.Soft() {
				d.Rate = 0
			}
		}
	}
	if w.Sizes != nil {
		w.Size, w.Sizes = w.Sizes.To, nil
	}
	w.Background, w.Iterations = false, min(w.Iterations, 3)
	file.Checks, file.Steps = nil, nil
	if o.File.Steps[0].Capture != nil {
		file.Steps = o.File.Steps[:1:1]
	}
	file.Steps = append(file.Steps, spec.Step{Workload: &w})
	o.File, o.Plan = &file, &p
	for range trials {
		r, err := o.runAside(ctx)
		if err != nil {
			return nil, err
		}
		row := &r.Workloads[0]
		if row.Load != nil {
			return row.Load, nil
		}
		w.Iterations = max(2*w.Iterations, int(trialTime.Seconds()/max(row.Time/1e6, 1e-6)))
	}
	return nil, errors.New("the operations took too little time to measure")
}

// runAside runs the file, and removes the results.
func (o Options) runAside(ctx context.Context) (*report.Report, error) {
	dir, err := os.MkdirTemp("", "railbed-trial-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o.Out = dir
	r, err := Run(ctx, o)
	if err == nil && len(r.Workloads) == 0 {
		err = fmt.Errorf("the run is %s: %s", r.Verdict, r.Reason)
	}
	return r, err
}
