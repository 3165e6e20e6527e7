package runner

import (
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/worker"
)

// finishMixture adds the results of a mixture of experts.
func (f *finished) finishMixture(w *spec.Workload, r *worker.Result, p *plan.Plan) {
	by, config := clock.Dilation(p.Dilation), w.MoE.Config(r.Ranks, p.Seed)
	own := r.Own.(*worker.Mixture)
	load := config.Load()
	took := func(d time.Duration) float64 { return float64(by.Passed(d)) / 1e3 }
	m := &report.Mixture{
		Experts:  config.Experts,
		Tokens:   config.Tokens,
		Hidden:   config.Hidden,
		TopK:     config.TopK,
		Skew:     w.MoE.Skew.String(),
		Dispatch: took(own.Dispatch),
		Combine:  took(own.Combine),
		Error:    own.Error.Relative(),
		Most:     own.Error.Most,
	}
	if exchange := (m.Dispatch + m.Combine) / 1e6; exchange > 0 {
		m.TokensPerSecond = float64(config.Ranks*config.Tokens) / exchange
	}
	m.Hottest, m.Load, m.Times = load.Hottest()
	if w.Channels == 0 {
		f.traffic.Pattern = verify.AllToAll
	}
	for from := range r.Ranks {
		for to := range r.Ranks {
			if dispatch, combine := config.Bytes(&load, from, to); from != to {
				m.DispatchBytes, m.CombineBytes = m.DispatchBytes+uint64(dispatch),
					m.CombineBytes+uint64(combine)
			}
		}
	}
	f.Mixture = m
}
