package runner

import (
	"context"
	"slices"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/scenarios/runner/judge"
	"railbed/scenarios/runner/measure"
)

// gather fills the evidence and the report from the steps, the recordings and the sampler. ctx limits the
// time of the last sample.
func (r *run) gather(ctx context.Context, line *timeline, s *session, sampler *measure.Sampler,
	captures []report.Capture) {
	ended := measure.Ending{Began: r.report.Began, HeldUp: s.sourcesHeldUp(),
		Overruns: overruns(s.finished()), Groups: r.endLinks(ctx), Captures: captures}
	r.evidence = judge.Evidence{
		Workloads: s.finished(),
		Stacks:    s.ran(),
		Steps:     line.report(),
		Keys:      s.keysNow(),
		Captures:  captures,
		Fidelity:  sampler.Finish(ctx, ended),
		Drops:     sampler.Drops(),
		Lost:      sampler.Losses(), Interrupted: sampler.Interrupted(), Clock: line.clock,
		Passing: watchLinks(r.Plan, r.prepared),
	}
	e := &r.evidence
	e.Acts = acts(r.Plan, r.prepared, e.Steps, line.clock)
	e.Sends = sends(r.Plan, r.prepared, e.Steps, line.clock)
	e.Crossing = func(stack string) (verify.Crossing, error) { return crossing(e, r.Plan, r.prepared, stack) }
	r.report.Steps, r.report.Captures, r.report.Fidelity = r.evidence.Steps, captures, r.evidence.Fidelity
	r.report.Acts, r.report.Signals = append(slices.Clone(e.Acts),
		nicActs(r.Plan, r.report.Fidelity, r.prepared, r.report.Steps, line.clock)...), sampler.Signals()
	r.report.Series = sampler.Series(r.report.Fidelity.Links, line.clock)
	r.addWorkloads(sampler)
}

// addWorkloads adds the workloads to the report, with the load in the time of their operations.
func (r *run) addWorkloads(sampler *measure.Sampler) {
	for _, w := range r.evidence.Workloads {
		load := sampler.Load(w.Began, w.Ended)
		if cpus := r.report.Host.CPUs; load != nil && cpus > 0 {
			load.Processors = cpus
			load.Others = report.OthersUse(r.report.Fidelity.Others, cpus) / float64(cpus)
		}
		w.Observations().Load = load
		w.AddTo(r.report)
	}
}
