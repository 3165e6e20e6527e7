package judge

import (
	"slices"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// timed reports whether a check depends on faithful time.
func timed(check *spec.Check) bool {
	switch {
	case check.Packets != nil:
		return verify.Timed(check.Packets)
	case check.Workload == nil:
		return true
	}
	w := check.Workload
	return slices.ContainsFunc(spec.Figures, func(k spec.Figure) bool {
		return k.Timed && (k.Bound(w) != "" || w.Beside != nil && k.Beside != nil && k.Beside(w.Beside) != "")
	})
}

// MarkTimed marks the failed checks that rest on times only. A workload check does if it does not fail when
// its bounds on times prove nothing.
func (e *Evidence) MarkTimed(checks []report.Check, file []spec.Check) {
	for i := range min(len(checks), len(file)) {
		c, check := &checks[i], &file[i]
		switch {
		case c.Verdict != verdict.Fail || e.Aborted != nil:
		case check.Packets != nil:
			c.Timed = verify.Timed(check.Packets)
		case check.Workload != nil:
			again, late := report.Check{}, &report.Fidelity{Verdict: report.Overloaded}
			JudgeWorkload(&again, check.Workload, e.Workload, late)
			if check.Workload.Beside != nil {
				JudgeBeside(&again, check.Workload, e.Workload, late)
			}
			c.Timed = again.Verdict != verdict.Fail
		}
	}
}

// Overload adjusts the checks of an overloaded run, and returns how many had failed. A check that
// depends on time proves nothing in such a run. A failure of any other check proves nothing either,
// because lateness may be its cause. A pass of any other check remains valid.
func Overload(checks []report.Check, file []spec.Check) (failed int) {
	for i := range checks {
		c := &checks[i]
		switch rests := i >= len(file) || timed(&file[i]); {
		case c.Verdict == verdict.Fail:
			failed++
			c.Verdict = verdict.Overloaded
			c.Summary += "; this proves nothing, because the emulation was overloaded"
		case c.Verdict == verdict.Pass && rests:
			c.Verdict = verdict.Overloaded
			c.Summary += "; this depends on time, and the emulation was overloaded"
		case c.Verdict == verdict.Pass:
			c.Details = append(c.Details, "this does not depend on time: it holds although the emulation "+
				"was overloaded")
		}
	}
	return failed
}
