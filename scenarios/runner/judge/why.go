package judge

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// causesShown bounds the causes in the summary of a check.
const causesShown = 3

// judgeWhy judges the causes of the run's slow and unfinished messages, as railbed why finds them. A host
// that does not keep up is a cause itself. So a check that does not hold proves nothing unless the run was
// faithful.
func (e *Evidence) judgeWhy(c *report.Check, want *spec.WhyCheck) {
	c.Verdict = verdict.Inconclusive
	if e.recording == nil {
		c.Summary = "the packets cannot be followed: want recordings of all packets that are complete, " +
			plural.Text("and of at most %d packets", maxFollowed)
		return
	}
	answer := mostMessages(e.recording.Why(e.recording.Select(follow.Selection{Workload: want.Workload})))
	if answer == nil {
		c.Summary = "no such message was recorded"
		return
	}
	of := strings.TrimSpace(answer.Workload + " " + answer.Protocol)
	at := slices.IndexFunc(answer.Causes, func(found follow.Cause) bool { return isCause(want, &found) })
	if want.Cause == spec.NoCause {
		at = -len(answer.Causes) // 0 if there is none
	}
	c.Summary = plural.Text("%d messages of ", answer.Messages) + of + ": " + causes(answer.Causes)
	switch {
	case at >= 0 && at < max(want.Among, 1):
		c.Verdict = verdict.Pass
	case e.Fidelity == nil || e.Fidelity.Verdict == report.Faithful:
		c.Verdict = verdict.Fail
	default:
		c.Summary += ", but the emulation was " + e.Fidelity.Verdict
	}
	if c.Verdict != verdict.Pass {
		c.Summary += "; want " + wanted(want)
	}
}

// mostMessages returns the answer with the most messages, or nil.
func mostMessages(answers []follow.Answer) (most *follow.Answer) {
	for i := range answers {
		if most == nil || answers[i].Messages > most.Messages {
			most = &answers[i]
		}
	}
	return most
}

func isCause(want *spec.WhyCheck, found *follow.Cause) bool {
	return strings.Contains(found.What, want.Cause) &&
		(want.At == "" || slices.ContainsFunc(found.Where, func(where string) bool {
			matched, err := path.Match(want.At, where)
			return err == nil && matched || where == want.At
		}))
}

// causes describes the first causes.
func causes(all []follow.Cause) string {
	if len(all) == 0 {
		return "no cause"
	}
	var words []string
	for _, c := range all[:min(len(all), causesShown)] {
		words = append(words, fmt.Sprintf("%s at %s", c.What, c.Where[0]))
	}
	if more := len(all) - len(words); more > 0 {
		words = append(words, plural.Text("%d more", more))
	}
	return strings.Join(words, "; ")
}

func wanted(want *spec.WhyCheck) string {
	text := fmt.Sprintf("%q", want.Cause)
	if want.Cause == spec.NoCause {
		return "no cause"
	}
	if want.At != "" {
		text += " at " + want.At
	}
	if want.Among > 1 {
		return text + fmt.Sprintf(" among the first %d", want.Among)
	}
	return text + " first"
}
