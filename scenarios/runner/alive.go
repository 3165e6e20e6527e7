package runner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// testbedError is the cause with which a run ends whose testbed has ended, or does
// not answer.
type testbedError struct{ reason string }

func (e *testbedError) Error() string { return e.reason }

const (
	supervisorDied   = "the testbed's supervisor died; its log is in " + logFile
	supervisorSilent = "the testbed's supervisor does not answer, and was killed: its process was stopped, " +
		"or got no processor; its log is in " + logFile
)

// watchSupervisor asks the supervisor whether it lives until ctx ends. One that does
// not answer is killed, and the run ends with a testbedError, sooner than any process
// is found silent whose words come through the supervisor. It is asked twice: the
// first time may have passed while this process was held up itself.
func watchSupervisor(ctx context.Context, tb *testbed.Testbed, silence time.Duration,
	fail context.CancelCauseFunc) {
	silent := func() bool { return errors.Is(answers(tb, silence/4), context.DeadlineExceeded) }
	for sleep(ctx, silence/silenceParts) {
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
			_ = tb.Kill() // what is left of the run waits for nothing any more
		}
		return
	}
}

// answers asks the supervisor for an answer within a time.
func answers(tb *testbed.Testbed, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := tb.Events(ctx, false, func(supervisor.Event) error { return nil })
	return cmp.Or(err, ctx.Err())
}

// diedOf is the cause with which a run ends whose testbed did: the supervisor's
// last words, where it left some. It is called once Done is closed.
func diedOf(tb *testbed.Testbed) error {
	return &testbedError{cmp.Or(tb.Aborted(), supervisorDied)}
}

// goneOf is why the testbed has ended, or is about to: the cause of whatever else went
// wrong. It is nil where the testbed lives, and its switches answer.
func goneOf(ctx context.Context, tb *testbed.Testbed, silence time.Duration) error {
	var gone *testbedError
	switch {
	case errors.As(context.Cause(ctx), &gone):
		return gone
	case ctx.Err() != nil:
		return nil // interrupted
	}
	err := answers(tb, silence)
	if err == nil {
		asked, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		_, err = tb.Inspect(asked)
		if asked.Err() == nil {
			return nil
		}
	}
	if err == nil {
		return nil
	}
	// A supervisor that cannot be reached, or whose switches do not answer, ends soon.
	select {
	case <-tb.Done():
		return diedOf(tb)
	case <-time.After(controlTimeout):
		return nil
	}
}
