package suite

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"railbed/internal/plural"
	"railbed/internal/verdict"
)

// Took returns the sum of the times of all runs of the case.
func (o *Outcome) Took() (all time.Duration) {
	for _, a := range o.Runs {
		all += time.Duration(a.Seconds * float64(time.Second))
	}
	return all
}

// withoutTreatment returns the run of a control with the verdict of the control: PASS if a check does not
// hold without the treatment, and FAIL if the run passes. A failed step proves nothing, nor does an
// INCONCLUSIVE run whose emulation was not faithful: the treatment may not be the cause.
func (a Attempt) withoutTreatment(control string) Attempt {
	switch was := a.Verdict; {
	case was == verdict.Pass:
		a.Verdict, a.Timed = verdict.Fail, false
		a.Reason = "it passes with " + control + ", so its checks do not prove the treatment"
	case !a.Reported || was != verdict.Fail && was != verdict.Inconclusive:
	case a.StepFailed || was == verdict.Inconclusive && !a.faithful():
		a.Verdict = verdict.Inconclusive
		a.Reason = fmt.Sprintf("with %s it is %s, and not by a check of the treatment: %s", control, was,
			a.Reason)
	default:
		a.Verdict = verdict.Pass
		a.Reason = fmt.Sprintf("with %s it is %s: %s", control, was, a.Reason)
	}
	return a
}

// counts reports whether the verdict of a run counts. A run that was repeated does not count, except for a
// FAIL that rests on no time.
func (a *Attempt) counts() bool {
	return !a.Replaced || a.Verdict == verdict.Fail && !a.Timed
}

// conclude sets the verdict of a case from the runs that count.
func (o *Outcome) conclude(strict bool) {
	var counted []Attempt
	finished := 0
	for _, a := range o.Runs {
		if a.counts() {
			if o.Control != "" {
				a = a.withoutTreatment(o.Control)
			}
			counted = append(counted, a)
		}
		if !a.Replaced {
			finished++
		}
	}
	if len(counted) == 0 {
		o.Verdict, o.Reason = verdict.Aborted, "not run: the suite was interrupted"
		return
	}
	if finished < o.Repeat {
		counted = append(counted, Attempt{Verdict: verdict.Aborted,
			Reason: plural.Text("%d of %d runs: the suite was interrupted", finished, o.Repeat)})
	}
	var verdicts []verdict.Verdict
	differ, disturbed := false, false
	for _, a := range counted {
		verdicts = append(verdicts, a.Verdict)
		differ = differ || a.Verdict != counted[0].Verdict
		disturbed = disturbed || a.Replaced
	}
	o.Flaky = differ && (o.Matrix == "" || disturbed)
	o.Verdict = verdict.Worst(verdicts...)
	worst := slices.IndexFunc(counted, func(a Attempt) bool { return a.Verdict == o.Verdict })
	o.Reason = counted[worst].Reason
	switch {
	case o.Flaky:
		o.Reason = fmt.Sprintf("flaky: %s: %s", countVerdicts(verdicts), o.Reason)
	case differ:
		o.Reason = fmt.Sprintf("%s: seed %d: %s", countVerdicts(verdicts), counted[worst].Seed, o.Reason)
	case strict && o.Verdict == verdict.Unsupported:
		o.Verdict, o.Reason = verdict.Fail, "UNSUPPORTED, and --strict allows no skips: "+o.Reason
	}
	o.Note = o.note()
}

// note describes the runs that were repeated and that do not count.
func (o *Outcome) note() string {
	var parts []string
	for _, a := range o.Runs {
		if a.counts() || a.Verdict == o.Verdict && (a.Verdict == verdict.Overloaded || !a.overloaded()) {
			continue
		}
		was := string(a.Verdict)
		if a.Reason != "" {
			first, _, _ := strings.Cut(a.Reason, "\n")
			was += " (" + first + ")"
		} else if a.overloaded() {
			was += " with an overloaded emulation"
		}
		how := "beside other runs"
		if a.Alone {
			how = "alone"
		}
		parts = append(parts, fmt.Sprintf("%s, made %s, was %s", path.Base(a.Dir), how, was))
	}
	if len(parts) == 0 {
		return ""
	}
	return "made again alone: " + strings.Join(parts, "; ")
}

// countVerdicts formats the number of each verdict: "8 PASS, 2 FAIL".
func countVerdicts(all []verdict.Verdict) string {
	counts := map[verdict.Verdict]int{}
	var order []verdict.Verdict
	for _, v := range all {
		if counts[v]++; counts[v] == 1 {
			order = append(order, v)
		}
	}
	slices.SortFunc(order, func(a, b verdict.Verdict) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var words []string
	for _, v := range order {
		words = append(words, fmt.Sprintf("%d %s", counts[v], v))
	}
	return strings.Join(words, ", ")
}
