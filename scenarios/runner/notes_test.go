package runner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// following runs a file, follows the events of its testbed, and returns the events of some kinds.
func following(t *testing.T, o Options, kinds ...string) (seen []string, end verdict.Verdict) {
	t.Helper()
	followed := make(chan error, 1)
	progress := o.Progress
	o.Progress = func(u Update) {
		if progress != nil {
			progress(u)
		}
		if !strings.HasPrefix(u.Line, "up in") {
			return
		}
		tb, err := testbed.Open(t.Context(), o.Plan.Name)
		if err != nil {
			followed <- err
			return
		}
		wrong := supervisor.NoteRequest{Kind: "testbed.down"}
		if err := tb.Note(t.Context(), wrong); err == nil || !strings.Contains(err.Error(),
			"want step.begin") {
			t.Errorf("a client adds %+v: %v", wrong, err)
		}
		go func() {
			err := tb.Events(t.Context(), true, func(e supervisor.Event) error {
				if slices.Contains(kinds, e.Kind) {
					seen = append(seen, e.Kind+" "+e.Subject+" "+e.Detail)
				}
				return nil
			})
			followed <- errors.Join(err, tb.Detach())
		}()
	}
	r := runAll(t, t.Context(), o)
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	return seen, r.Verdict
}

// Who follows the events of a run's testbed sees its steps.
func TestStepsAreEvents(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	seen, end := following(t, options(t, twoHosts+`
steps:
  - exec: {name: first, nodes: [h0], command: ["true"]}
  - exec: {name: second, nodes: [h1], command: ["false"]}
`), supervisor.StepBegin, supervisor.StepEnd)
	if end != verdict.Fail || len(seen) != 4 || !slices.Equal(seen[:3], []string{"step.begin exec first ",
		"step.end exec first passed",
		"step.begin exec second "}) || !strings.HasPrefix(seen[3],
		"step.end exec second failed: false in h1: ") {
		t.Errorf("%s: the events are %q", end, seen)
	}
}

// Who follows the events of a run's testbed sees its verdicts: on a workload when it ends, and on packets
// before the testbed goes down.
func TestVerdictsAreEvents(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	seen, _ := following(t, options(t, twoHosts+`
nodes: {default: {ranks: 1}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: tcp, size: 64KiB, iterations: 1}
  - exec: {name: last, nodes: [h0], command: ["true"]}
checks:
  - packets: {conservation: "*"}
  - workload: {name: ar, correct: true}
`), supervisor.StepEnd, supervisor.CheckVerdict)
	const right = "every element of 2 ranks is right"
	want := []string{"step.end capture", "step.end workload ar passed",
		"check.verdict workload ar PASS so far: " + right, "step.end exec last passed",
		"check.verdict conservation * PASS: ", "check.verdict workload ar PASS: " + right}
	if !slices.EqualFunc(seen, want, strings.HasPrefix) {
		t.Errorf("the events are %q", seen)
	}
}
