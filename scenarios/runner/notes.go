package runner

import (
	"context"

	"railbed/capture/report"
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
	select {
	case n.waiting <- note:
	default:
	}
}

// end waits until the steps so far are reported.
func (n *notes) end() {
	close(n.over)
	<-n.done
}
