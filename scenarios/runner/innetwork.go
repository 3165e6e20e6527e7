package runner

import (
	"context"
	"slices"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/worker"
)

// aggregator reserves the switches that compute a workload's all-reduce. Until release is called,
// no other workload of the session uses their aggregation job.
func (s *session) aggregator(ctx context.Context, w *spec.Workload, ranks []plan.Rank) (a *worker.Aggregator,
	release func(), err error) {
	s.mu.Lock()
	a, err = worker.FindAggregator(s.plan, ranks, w.Switch, s.adding...)
	if err == nil {
		s.adding = append(s.adding, a.Job.Number)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		a.End()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.adding = slices.DeleteFunc(s.adding, func(job uint16) bool { return job == a.Job.Number })
	}
	if err := a.Begin(ctx, s.testbed); err != nil {
		release()
		return nil, nil, err
	}
	return a, release, nil
}
