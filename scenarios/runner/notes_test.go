package runner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// Who follows the events of a run's testbed sees its steps.
func TestStepsAreEvents(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, twoHosts+`
steps:
  - exec: {name: first, nodes: [h0], command: ["true"]}
  - exec: {name: second, nodes: [h1], command: ["false"]}
`)
	var seen []string
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
				if strings.HasPrefix(e.Kind, "step.") {
					seen = append(seen, e.Kind+" "+e.Subject+" "+e.Detail)
				}
				return nil
			})
			followed <- errors.Join(err, tb.Detach())
		}()
	}
	want(t, runAll(t, t.Context(), o), verdict.Fail)
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 || !slices.Equal(seen[:3], []string{"step.begin exec first ",
		"step.end exec first passed",
		"step.begin exec second "}) || !strings.HasPrefix(seen[3],
		"step.end exec second failed: false in h1: ") {
		t.Errorf("the events are %q", seen)
	}
}
