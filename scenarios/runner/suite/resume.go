package suite

import (
	"fmt"
	"slices"

	"railbed/internal/verdict"
)

// resume takes over the runs of earlier results, in the same directory, of a case with the same content. It
// leaves out repetitions whose last run was interrupted or has no report.
func (o *Outcome) resume(earlier *Results) {
	if earlier == nil || o.Content == "" {
		return
	}
	at := slices.IndexFunc(earlier.Cases, func(e Outcome) bool {
		return e.Name == o.Name && e.Content == o.Content && e.Control == o.Control
	})
	if at < 0 {
		return
	}
	complete := map[int]bool{}
	for _, a := range earlier.Cases[at].Runs {
		if !a.Replaced {
			complete[a.Repetition] = a.Reported && a.Verdict != verdict.Aborted
		}
	}
	for _, a := range earlier.Cases[at].Runs {
		if complete[a.Repetition] && a.Repetition <= o.Repeat {
			a.Earlier, o.NotRun = true, false
			o.Runs = append(o.Runs, a)
		}
	}
}

// has reports whether a repetition was run.
func (o *Outcome) has(repetition int) bool {
	return slices.ContainsFunc(o.Runs, func(a Attempt) bool { return a.Repetition == repetition })
}

// nextDir returns a directory that no run of the case has.
func (o *Outcome) nextDir() string {
	for n := 1; ; n++ {
		dir := fmt.Sprintf("%s/run-%d", o.Name, n)
		if !slices.ContainsFunc(o.Runs, func(a Attempt) bool { return a.Dir == dir }) {
			return dir
		}
	}
}
