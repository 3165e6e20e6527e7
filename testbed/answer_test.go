package testbed_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"railbed/testbed"
)

// TestStoppedSupervisor: callers of a stopped supervisor receive an error in time. When the
// supervisor runs again, it is as before.
func TestStoppedSupervisor(t *testing.T) {
	tb := up(t, "go-stopped")
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(state.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(state.PID, syscall.SIGCONT)
	time.Sleep(50 * time.Millisecond) // threads that run stop a moment later
	defer testbed.SetAnswerTimeout(200 * time.Millisecond)()
	for what, ask := range map[string]func() error{
		"inspect": func() error { _, err := tb.Inspect(t.Context()); return err },
		"verify":  func() error { return tb.Verify(t.Context()) },
		"open":    func() error { _, err := testbed.Open(t.Context(), tb.Name()); return err },
		"exec":    func() error { return tb.Node("h0").Command(t.Context(), "true").Run() },
	} {
		start := time.Now()
		if err := ask(); !errors.Is(err, testbed.ErrNoAnswer) || time.Since(start) > 5*time.Second {
			t.Errorf("%s: %v after %v, want ErrNoAnswer", what, err, time.Since(start))
		}
	}
	// The caller's own limit counts, too.
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
	defer cancel()
	if err := tb.Node("h0").Command(ctx, "true").Run(); !errors.Is(err, cause) {
		t.Errorf("exec with a limit of its own: %v, want %v", err, cause)
	}
	testbed.SetAnswerTimeout(time.Minute)
	if err := syscall.Kill(state.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := tb.Node("h0").Command(t.Context(), "true").Run(); err != nil {
		t.Errorf("after it goes on: %v", err)
	}
}
