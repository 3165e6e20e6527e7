package runner

import (
	"context"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// notesAhead bounds the notes that wait for the testbed. Further notes are left out.
const notesAhead = 256

// notes reports the run's steps to a testbed, for those who watch its events. The run does not wait for it.
type notes struct {
	waiting    chan supervisor.NoteRequest
	over, done chan struct{}
}

func startNotes(ctx context.Context, tb *testbed.Testbed) *notes {
	n := &notes{waiting: make(chan supervisor.NoteRequest, notesAhead), over: make(chan struct{}),
		done: make(chan struct{})}
	go func() {
		defer close(n.done)
		for over := false; !over || len(n.waiting) > 0; {
			select {
			case note := <-n.waiting:
				if tb.Note(ctx, note) != nil {
					return // the testbed is gone, or the run is interrupted
				}
			case <-n.over:
				over = true
			}
		}
	}()
	return n
}

// step reports a step that has begun or ended.
func (n *notes) step(s report.Step) {
	note := supervisor.NoteRequest{Kind: supervisor.StepEnd, Subject: s.Name, Detail: string(s.State)}
	switch {
	case s.State == running:
		note.Kind, note.Detail = supervisor.StepBegin, ""
	case s.Error != "":
		note.Detail += ": " + s.Error
	}
	n.add(note)
}

// check reports the verdict of a check.
func (n *notes) check(c *report.Check, soFar string) {
	n.add(supervisor.NoteRequest{Kind: supervisor.CheckVerdict, Subject: c.Name,
		Detail: string(c.Verdict) + soFar + ": " + c.Summary})
}

func (n *notes) add(note supervisor.NoteRequest) {
	select {
	case n.waiting <- note:
	default:
	}
}

// verdictsSoFar reports the checks of a workload whose step has ended. The run's end may still change them,
// because only then it is known whether the emulation kept up.
func (n *notes) verdictsSoFar(file *spec.Testbed, index int, done []judge.Finished) {
	e := judge.Evidence{Workloads: done}
	for _, check := range file.Checks {
		if w := check.Workload; w != nil && w.Beside == nil && w.Name == file.Steps[index].Work() &&
			e.Workload(w.Name) != nil {
			c := report.Check{Name: judge.Title(check)}
			judge.JudgeWorkload(&c, w, e.Workload, nil)
			n.check(&c, " so far")
		}
	}
}

// watched reports whether somebody follows the events of a testbed.
func watched(ctx context.Context, tb *testbed.Testbed) bool {
	state, err := tb.Inspect(ctx)
	return err == nil && state.Followers > 0
}

// tellVerdicts reports the checks to those who watch a testbed.
func tellVerdicts(ctx context.Context, tb *testbed.Testbed, checks []report.Check) {
	n := startNotes(ctx, tb)
	defer n.end()
	for i := range checks {
		n.check(&checks[i], "")
	}
}

// end waits until the steps so far are reported.
func (n *notes) end() {
	close(n.over)
	<-n.done
}
