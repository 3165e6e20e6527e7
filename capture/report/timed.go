package report

import "railbed/internal/verdict"

// RestsOnTime reports whether a FAIL rests on times only, so that a less busy machine may give another
// verdict. Each step that failed was then not done within its limit, and each failed check judges times.
func (r *Report) RestsOnTime() bool {
	if r.Verdict != verdict.Fail {
		return false
	}
	causes := 0
	for _, step := range r.Steps {
		if step.State == Failed {
			causes++
			if !step.Late {
				return false
			}
		}
	}
	for _, check := range r.Checks {
		if check.Verdict == verdict.Fail {
			causes++
			if !check.Timed {
				return false
			}
		}
	}
	return causes > 0
}
