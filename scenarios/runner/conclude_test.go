package runner

import (
	"errors"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// TestLeftoversAfterAFailure checks that the reason reports the remains of a testbed and does not
// hide why its run failed.
func TestLeftoversAfterAFailure(t *testing.T) {
	left := errors.New("take down t: not everything could be removed; railbed gc tries again; its log " +
		"ends:\nlevel=ERROR")
	for _, test := range []struct {
		steps   error
		verdict verdict.Verdict
		reason  string
	}{
		{&stepError{0, errors.New("no answer")}, verdict.Fail,
			"f:1:1: step a: no answer; then take down t: not everything could be removed; railbed gc tries " +
				"again"},
		{&containerError{"h0: it ended"}, verdict.Fail,
			"h0: it ended; then take down t: not everything could be removed; railbed gc tries again"},
		{nil, verdict.Aborted, left.Error()},
	} {
		r := &run{
			Options: Options{File: &spec.Testbed{Steps: []spec.Step{{}}}}, steps: test.steps,
			report: &report.Report{Steps: []report.Step{{Where: "f:1:1", Name: "a"}}},
		}
		r.conclude(t.Context(), left)
		if r.report.Verdict != test.verdict || r.report.Reason != test.reason {
			t.Errorf("%v: %s, %q; want %s, %q", test.steps, r.report.Verdict, r.report.Reason, test.verdict,
				test.reason)
		}
	}
}
