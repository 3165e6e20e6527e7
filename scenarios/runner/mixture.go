package runner

import (
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/training/moe"
	"railbed/workloads/worker"
)

// mixtureOutcome is the outcome of a mixture of experts.
type mixtureOutcome struct{ collectiveOutcome }

func (o mixtureOutcome) Correctness() judge.Correctness {
	words := judge.Elements(o.Ranks)
	words.Right = plural.Text("every byte that reached the experts of %d ranks is right, and every element "+
		"that came back is exact to the bit, with at most %.0f%% of the permitted error", o.Ranks,
		100*o.Mixture.Most)
	return words
}

// finishMixture adds the results of a mixture of experts to the outcome of its collective.
func finishMixture(of collectiveOutcome, w *spec.Workload, own *worker.Mixture, p *plan.Plan) judge.Outcome {
	by, config := clock.Dilation(p.Dilation), moe.ConfigOf(w.MoE, of.Ranks, p.Seed)
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
	for from := range of.Ranks {
		for to := range of.Ranks {
			if dispatch, combine := config.Bytes(&load, from, to); from != to {
				m.DispatchBytes, m.CombineBytes = m.DispatchBytes+uint64(dispatch),
					m.CombineBytes+uint64(combine)
			}
		}
	}
	of.Mixture = m
	return mixtureOutcome{of}
}
