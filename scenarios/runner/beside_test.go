package runner

import (
	"strings"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/workloads/worker"
)

// A workload is compared with another one by its bus bandwidth.
func TestBesideByNumbers(t *testing.T) {
	done := map[string]*judge.Finished{
		"slow":  {Outcome: collectiveOutcome{&report.Workload{BusBW: 0.089}}},
		"fast":  {Outcome: collectiveOutcome{&report.Workload{BusBW: 0.1}}},
		"none":  {Outcome: collectiveOutcome{&report.Workload{}}},
		"wrong": {Outcome: collectiveOutcome{&report.Workload{BusBW: 0.01}}, Wrong: 1},
	}
	for _, c := range []struct {
		name, other, bound, fidelity string
		want                         verdict.Verdict
	}{
		{"slow", "fast", ">= 90%", report.Faithful, verdict.Fail},
		{"slow", "fast", ">= 85%", report.Faithful, verdict.Pass},
		{"fast", "slow", ">= 110%", report.Degraded, verdict.Pass},
		{"fast", "slow", ">= 120%", report.Faithful, verdict.Fail},
		{"slow", "none", ">= 1%", report.Faithful, verdict.Inconclusive},
		{"slow", "absent", ">= 1%", report.Faithful, verdict.Inconclusive},
		{"absent", "slow", ">= 1%", report.Faithful, verdict.Inconclusive},
		// A host that did not keep up explains a difference, but no wrong byte.
		{"slow", "fast", ">= 90%", report.Degraded, verdict.Inconclusive},
		{"wrong", "fast", ">= 90%", report.Degraded, verdict.Fail},
		{"wrong", "none", ">= 90%", report.Degraded, verdict.Fail},
	} {
		var check report.Check
		workload := func(name string) *judge.Finished { return done[name] }
		w := &spec.WorkloadCheck{Name: c.name, Correct: c.name == "wrong",
			Beside: &spec.Beside{Workload: c.other, BusBW: c.bound}}
		judge.JudgeWorkload(&check, w, workload, nil)
		judge.JudgeBeside(&check, w, workload, &report.Fidelity{Verdict: c.fidelity})
		if check.Verdict != c.want || strings.HasPrefix(check.Summary, ";") {
			t.Errorf("%s beside %s %s, %s: %s %q, want %s", c.name, c.other, c.bound, c.fidelity,
				check.Verdict, check.Summary, c.want)
		}
	}
}

// Of a training job whose ranks have other clocks no figure is judged, alone or beside another.
func TestTimesOfOtherClocksAreNotJudged(t *testing.T) {
	own := report.Training{Iterations: []float64{1}}
	other := own
	other.OtherClocks = true
	done := map[string]*judge.Finished{"own": {Outcome: trainingOutcome{&own}},
		"other": {Outcome: trainingOutcome{&other}}}
	workload := func(name string) *judge.Finished { return done[name] }
	for _, c := range []struct {
		name, iteration, beside string
		want                    verdict.Verdict
	}{
		{"own", "<= 2s", "", verdict.Pass}, {"own", "<= 2s", "own", verdict.Pass},
		{"other", "<= 2s", "", verdict.Inconclusive}, {"other", "", "own", verdict.Inconclusive},
		{"own", "", "other", verdict.Inconclusive},
	} {
		var check report.Check
		w := &spec.WorkloadCheck{Name: c.name, Iteration: c.iteration}
		if c.beside != "" {
			w.Beside = &spec.Beside{Workload: c.beside, Iteration: "<= 100%"}
		}
		judge.JudgeWorkload(&check, w, workload, nil)
		if w.Beside != nil {
			judge.JudgeBeside(&check, w, workload, nil)
		}
		if check.Verdict != c.want {
			t.Errorf("%+v: %s %q", c, check.Verdict, check.Summary)
		}
	}
}

// TestBoundsOfTimesByFidelity checks that an overloaded host proves neither a bound that it makes
// easier nor a comparison. If a host did not keep up, a bound that does not hold is no failure.
func TestBoundsOfTimesByFidelity(t *testing.T) {
	attained := 0.6
	messages := &judge.Finished{Outcome: messagesOutcome{
		&report.Messages{Times: report.Percentiles{Count: 1, P99: 0.006}, Attained: &attained}}}
	training := &judge.Finished{Outcome: trainingOutcome{&report.Training{Iterations: []float64{0.1},
		PerRank: []report.TrainingRank{{Exposed: 0.3, Compute: 0.6}}}}}
	collective := &judge.Finished{Outcome: collectiveOutcome{&report.Workload{BusBW: 0.1}}} // 800 Mbit/s
	learning := &judge.Finished{Outcome: finishSGD(collectiveOutcome{&report.Workload{}},
		&worker.Learning{Held: 0.4})}
	const pass, fail, unclear = verdict.Pass, verdict.Fail, verdict.Inconclusive
	for _, c := range []struct {
		of                             *judge.Finished
		check                          spec.WorkloadCheck
		faithful, degraded, overloaded verdict.Verdict
	}{
		{messages, spec.WorkloadCheck{P99: ">= 5ms"}, pass, pass, unclear},
		{messages, spec.WorkloadCheck{P99: "<= 7ms"}, pass, pass, pass},
		{messages, spec.WorkloadCheck{P99: "<= 5ms"}, fail, unclear, unclear},
		{messages, spec.WorkloadCheck{Attained: ">= 50%"}, pass, pass, pass},
		{messages, spec.WorkloadCheck{Attained: "<= 70%"}, pass, pass, unclear},
		{training, spec.WorkloadCheck{Iteration: "> 50ms"}, pass, pass, unclear},
		{training, spec.WorkloadCheck{Exposed: ">= 20%"}, pass, pass, unclear},
		{training, spec.WorkloadCheck{Utilisation: ">= 50%"}, pass, pass, pass},
		{training, spec.WorkloadCheck{Utilisation: "<= 70%"}, pass, pass, unclear},
		{collective, spec.WorkloadCheck{BusBW: ">= 700 Mbit/s"}, pass, pass, pass},
		{collective, spec.WorkloadCheck{BusBW: "<= 900 Mbit/s"}, pass, pass, unclear},
		{collective, spec.WorkloadCheck{BusBW: ">= 900 Mbit/s"}, fail, unclear, unclear},
		{collective, spec.WorkloadCheck{Beside: &spec.Beside{BusBW: "<= 100%"}}, pass, pass, unclear},
		{learning, spec.WorkloadCheck{Loss: "<= 0.5"}, pass, pass, pass},
		{learning, spec.WorkloadCheck{Loss: ">= 0.5"}, fail, fail, fail},
		{learning, spec.WorkloadCheck{Beside: &spec.Beside{Loss: "<= 110%"}}, pass, pass, pass},
	} {
		for fidelity, want := range map[string]verdict.Verdict{report.Faithful: c.faithful,
			report.Degraded: c.degraded, report.Overloaded: c.overloaded} {
			var check report.Check
			workload := func(string) *judge.Finished { return c.of }
			judge.JudgeWorkload(&check, &c.check, workload, &report.Fidelity{Verdict: fidelity})
			if c.check.Beside != nil {
				judge.JudgeBeside(&check, &c.check, workload, &report.Fidelity{Verdict: fidelity})
			}
			if check.Verdict != want {
				t.Errorf("%+v, %s: %s %q, want %s", c.check, fidelity, check.Verdict, check.Summary, want)
			}
		}
	}
}

// A figure of nothing is one all the same; only of another's nothing there is no part.
func TestBesideOfNothing(t *testing.T) {
	exposed := func(share float64) *judge.Finished {
		return &judge.Finished{Outcome: trainingOutcome{
			&report.Training{PerRank: []report.TrainingRank{{Exposed: share}}}}}
	}
	done := map[string]*judge.Finished{"hidden": exposed(0), "shown": exposed(0.4)}
	for own, want := range map[string]verdict.Verdict{"hidden": verdict.Pass, "shown": verdict.Inconclusive} {
		w := &spec.WorkloadCheck{Name: own,
			Beside: &spec.Beside{Workload: map[string]string{"hidden": "shown", "shown": "hidden"}[own],
				Exposed: "<= 50%"}}
		var check report.Check
		judge.JudgeWorkload(&check, w, func(name string) *judge.Finished { return done[name] }, nil)
		judge.JudgeBeside(&check, w, func(name string) *judge.Finished { return done[name] }, nil)
		if check.Verdict != want {
			t.Errorf("%s: %s %q, want %s", own, check.Verdict, check.Summary, want)
		}
	}
}
