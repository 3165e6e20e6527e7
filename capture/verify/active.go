package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
)

// SentIn returns the time in which steps of a run sent packets that checks are about, in nanoseconds since
// 1970: all steps, or the workload of a name. It returns zeros if the report does not say.
func SentIn(r *report.Report, workload string) (from, to int64) {
	if r.Began.IsZero() {
		return 0, 0
	}
	for i := range r.Steps {
		step := &r.Steps[i]
		key := step.Key()
		if !spec.Sends(key) || step.State == report.Skipped ||
			workload != "" && (step.Called != workload || key == "traffic" || key == "stack") {
			continue
		}
		if began := r.At(step.Start).UnixNano(); from == 0 || began < from {
			from = began
		}
		to = max(to, r.At(step.End).UnixNano())
	}
	return from, to
}

// ActiveIn returns the times in which a fault or a step of a run was active, by its name in the file. If it
// never was, ActiveIn returns the reason. Its error is that the run has no such fault or step.
func ActiveIn(r *report.Report, name string) (active []evidence.Active, never string, err error) {
	if r.Began.IsZero() {
		return nil, "report.json has no start time of the steps: an older railbed wrote it, or the run " +
			"ended before them", nil
	}
	at := func(seconds float64) int64 { return r.At(seconds).UnixNano() }
	var names []string
	known := false
	for i := range r.Steps {
		step := &r.Steps[i]
		if step.Called != name {
			if step.Called != "" {
				names = append(names, step.Called)
			}
			continue
		}
		known = true
		fault := step.Key() == "fault"
		switch {
		case step.State == report.Skipped:
			never = cmp.Or(never, "its step did not begin")
		case fault && len(step.Active) == 0:
			never = cmp.Or(never, "it never came into force")
		case !fault && step.End > step.Start:
			active = append(active, evidence.Active{Begun: at(step.Start), From: at(step.Start),
				To: at(step.End), Ended: at(step.End)})
		}
		for _, a := range step.Active {
			one := evidence.Active{Begun: at(a.Begun), From: at(a.From), To: math.MaxInt64,
				Ended: math.MaxInt64}
			if a.Ended > 0 {
				one.To, one.Ended = at(a.To), at(a.Ended)
			}
			active = append(active, one)
		}
	}
	if !known {
		slices.Sort(names)
		has := "no named step or fault"
		if names = slices.Compact(names); len(names) > 0 {
			has = strings.Join(names, ", ")
		}
		return nil, "", fmt.Errorf("no fault or step of the run is named %q: it has %s", name, has)
	}
	if len(active) > 0 {
		never = ""
	}
	return active, never, nil
}
