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
	}
	for _, c := range []struct {
		name, other, bound string
		want               verdict.Verdict
	}{
		{"slow", "fast", ">= 90%", verdict.Fail}, {"slow", "fast", ">= 85%", verdict.Pass}, {"fast", "slow", ">= 110%", verdict.Pass},
		{"fast", "slow", ">= 120%", verdict.Fail}, {"slow", "none", ">= 1%", verdict.Inconclusive}, {"slow", "absent", ">= 1%", verdict.Inconclusive},
		{"absent", "slow", ">= 1%", verdict.Inconclusive},
	} {
		var check report.Check
		judgeWorkload(&check, &spec.WorkloadCheck{Name: c.name, Beside: &spec.Beside{Workload: c.other, BusBW: c.bound}}, func(name string) *finished { return done[name] })
		if check.Verdict != c.want || strings.HasPrefix(check.Summary, ";") {
			t.Errorf("%s beside %s %s: %s %q, want %s", c.name, c.other, c.bound, check.Verdict, check.Summary, c.want)
		}
	}
}
