package engine

import (
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/testbed/spec"
	"railbed/testbed/verdict"
)

// A workload is compared with another one by its bus bandwidth.
func TestBesideByNumbers(t *testing.T) {
	done := map[string]*finished{
		"slow": {Workload: report.Workload{BusBW: 0.089}}, "fast": {Workload: report.Workload{BusBW: 0.1}}, "none": {},
		"wrong": {Workload: report.Workload{BusBW: 0.01, Wrong: 1}},
	}
	for _, c := range []struct {
		name, other, bound, fidelity string
		want                         verdict.Verdict
	}{
		{"slow", "fast", ">= 90%", report.Faithful, verdict.Fail}, {"slow", "fast", ">= 85%", report.Faithful, verdict.Pass},
		{"fast", "slow", ">= 110%", report.Degraded, verdict.Pass}, {"fast", "slow", ">= 120%", report.Faithful, verdict.Fail},
		{"slow", "none", ">= 1%", report.Faithful, verdict.Inconclusive}, {"slow", "absent", ">= 1%", report.Faithful, verdict.Inconclusive},
		{"absent", "slow", ">= 1%", report.Faithful, verdict.Inconclusive},
		// A host that did not keep up explains a difference, but no wrong byte.
		{"slow", "fast", ">= 90%", report.Degraded, verdict.Inconclusive}, {"wrong", "fast", ">= 90%", report.Degraded, verdict.Fail},
		{"wrong", "none", ">= 90%", report.Degraded, verdict.Fail},
	} {
		var check report.Check
		workload := func(name string) *finished { return done[name] }
		w := &spec.WorkloadCheck{Name: c.name, Correct: c.name == "wrong", Beside: &spec.Beside{Workload: c.other, BusBW: c.bound}}
		judgeWorkload(&check, w, workload, nil)
		judgeBeside(&check, w, workload, &report.Fidelity{Verdict: c.fidelity})
		if check.Verdict != c.want || strings.HasPrefix(check.Summary, ";") {
			t.Errorf("%s beside %s %s, %s: %s %q, want %s", c.name, c.other, c.bound, c.fidelity, check.Verdict, check.Summary, c.want)
		}
	}
}

// Of a training job whose ranks have other clocks no figure is judged, alone or beside another.
func TestTimesOfOtherClocksAreNotJudged(t *testing.T) {
	own := report.Training{Iterations: []float64{1}}
	other := own
	other.OtherClocks = true
	done := map[string]*finished{"own": {training: &own}, "other": {training: &other}}
	workload := func(name string) *finished { return done[name] }
	for _, c := range []struct {
		name, iteration, beside string
		want                    verdict.Verdict
	}{
		{"own", "<= 2s", "", verdict.Pass}, {"own", "<= 2s", "own", verdict.Pass},
		{"other", "<= 2s", "", verdict.Inconclusive}, {"other", "", "own", verdict.Inconclusive}, {"own", "", "other", verdict.Inconclusive},
	} {
		var check report.Check
		w := &spec.WorkloadCheck{Name: c.name, Iteration: c.iteration}
		if c.beside != "" {
			w.Beside = &spec.Beside{Workload: c.beside, Iteration: "<= 100%"}
		}
		judgeWorkload(&check, w, workload, nil)
		if w.Beside != nil {
			judgeBeside(&check, w, workload, nil)
		}
		if check.Verdict != c.want {
			t.Errorf("%+v: %s %q", c, check.Verdict, check.Summary)
		}
	}
}
