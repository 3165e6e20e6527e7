package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testbed"
)

// reason returns the cause of the verdict in one line, with its position in the file.
func (r *run) reason(ctx context.Context, err error) string {
	rep := r.report
	if rep.Verdict == verdict.Aborted && ctx.Err() != nil {
		return "interrupted"
	}
	if stepVerdict(err) == rep.Verdict {
		return r.reasonOf(err)
	}
	late := "" // what the emulator lacked, and what to do
	if f := rep.Fidelity; rep.Verdict == verdict.Overloaded && f != nil {
		if f.Cause != "" {
			late = f.Cause + "; " + f.Remedy
		}
		if f.Verdict == report.Overloaded {
			return "the emulator did not keep up: " + cmp.Or(late, strings.Join(f.Reasons, "; "))
		}
	}
	var reasons []string
	for _, check := range rep.Checks {
		if check.Verdict == rep.Verdict {
			reasons = append(reasons, fmt.Sprintf("%s: %s: %s", check.Where, check.Name, check.Summary))
		}
	}
	idle := r.idle()
	if idle != "" && rep.Verdict == verdict.Inconclusive {
		reasons, idle = slices.Insert(reasons, 0, idle), ""
	}
	if len(reasons) == 0 {
		return "the file has neither steps nor checks"
	}
	reason := reasons[0]
	if len(reasons) > 1 {
		reason += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	for _, more := range []string{idle, late} { // they may be why a check fails
		if more != "" {
			reason += "; " + more
		}
	}
	return reason
}

func (r *run) reasonOf(err error) string {
	var failed *stepError
	if errors.As(err, &failed) {
		step := r.report.Steps[failed.index]
		return fmt.Sprintf("%s: step %s: %v", step.Where, step.Name, failed.err)
	}
	var lacks testbed.LacksError
	if errors.As(err, &lacks) {
		return strings.ReplaceAll(lacks.Error(), "\n", "; ")
	}
	if u := r.report.Unsupported; u != nil && u.Where != "" {
		return fmt.Sprintf("%s: %v", u.Where, err)
	}
	return err.Error()
}
