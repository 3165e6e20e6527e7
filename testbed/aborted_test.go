package testbed_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// TestReasonAfterASweep checks that the reason of a testbed's end is known after another command has swept
// its run directory.
func TestReasonAfterASweep(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	text := "name: swept-reason\nfabric: {topology: single-switch, params: {hosts: 2}}\n"
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tb.Close() }) // it is dead
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(switchProcess(t, state.PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-tb.Done():
	case <-time.After(hosttest.Bound):
		t.Fatal("the supervisor lives without its switches")
	}
	if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
		t.Fatal(err)
	}
	if reason := tb.Aborted(); !strings.Contains(reason, "the process of the soft switches") {
		t.Errorf("reason %q", reason)
	}
}
