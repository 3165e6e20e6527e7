package runner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"railbed/capture/bundle"
	"railbed/internal/clock"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// testbedError is the cause that ends a run if its testbed has ended or does not answer.
type testbedError struct{ reason string }

func (e *testbedError) Error() string { return e.reason }

const (
	supervisorDied   = "the testbed's supervisor died; its log is in " + bundle.SupervisorLog
	supervisorSilent = "the testbed's supervisor does not answer, and was killed: its process was stopped, " +
		"or got no processor; its log is in " + bundle.SupervisorLog
)

// watchSupervisor asks the supervisor whether it is alive until ctx ends. If the supervisor does
// not answer, watchSupervisor kills it and ends the run with a testbedError. This happens before
// the silence of any process whose messages pass through the supervisor is noticed. watchSupervisor
// asks twice, because this process may itself have been held up during the first question.
func watchSupervisor(ctx context.Context, tb *testbed.Testbed, silence time.Duration,
	fail context.CancelCauseFunc) {
	silent := func() bool { return errors.Is(answers(tb, silence/4), context.DeadlineExceeded) }
	for clock.Sleep(ctx, silence/silenceParts) {
		if !silent() {
			continue
		}
		if !silent() {
			continue
		}
		select {
		case <-tb.Done():
		case <-ctx.Done():
		default:
			fail(&testbedError{supervisorSilent})
			_ = tb.Kill() // the rest of the run no longer waits for an answer
		}
		return
	}
}

// watchEnd ends the run when its testbed ends before ctx does.
func watchEnd(ctx context.Context, tb *testbed.Testbed, fail context.CancelCauseFunc) {
	select {
	case <-tb.Done():
		fail(diedOf(tb))
	case <-tb.Ending():
		fail(diedOf(tb))
	case <-ctx.Done():
	}
}

// answers asks the supervisor for an answer within the given time.
func answers(tb *testbed.Testbed, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := tb.Events(ctx, false, func(supervisor.Event) error { return nil })
	return cmp.Or(err, ctx.Err())
}

// diedOf returns the cause that ends a run whose testbed has ended: the supervisor's last message,
// if it left one. Call it only after Done or Ending is closed.
func diedOf(tb *testbed.Testbed) error {
	return &testbedError{cmp.Or(tb.Aborted(), supervisorDied)}
}

// goneOf returns why the testbed has ended, or is about to end, which explains other failures. It
// returns nil if the testbed is alive and its switches answer.
func goneOf(ctx context.Context, tb *testbed.Testbed, silence time.Duration) error {
	var gone *testbedError
	switch {
	case errors.As(context.Cause(ctx), &gone):
		return gone
	case ctx.Err() != nil:
		return nil // interrupted
	}
	within := func(ask func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		return ask(ctx)
	}
	err := within(tb.Reach)
	if err == nil {
		err = answers(tb, silence)
	}
	if err == nil {
		err = within(func(ctx context.Context) error { _, err := tb.Sample(ctx); return err })
	}
	if err == nil {
		return nil
	}
	// A supervisor that cannot be reached, or whose switches do not answer, exits soon.
	select {
	case <-tb.Done():
		return diedOf(tb)
	case <-time.After(controlTimeout):
		return nil
	}
}
