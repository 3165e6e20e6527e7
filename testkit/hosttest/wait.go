package hosttest

import (
	"errors"
	"testing"
	"time"
)

// Bound is how long a test waits for an event that must come. It is far longer than a busy machine
// delays any event, so that a test which reaches it has found a fault. Tests that pass never wait
// for so long: they return with the event.
const Bound = time.Minute

// pollEvery is how often Eventually asks. It is short beside the steps of a test, and long beside
// the time that most questions take.
const pollEvery = 5 * time.Millisecond

// Eventually asks until check returns nil, and fails the test with its last error after Bound. It
// serves for states that the kernel or other processes reach by themselves. What names the state.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	eventually(t, Bound, what, check)
}

// Until is Eventually for a state that has no error to report.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	eventually(t, Bound, what, func() error {
		if !holds() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

func eventually(t testing.TB, bound time.Duration, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(bound); ; time.Sleep(pollEvery) {
		late := time.Now().After(deadline) // asked before the last check, which may be held up itself
		err := check()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("waited %v for %s: %v", bound, what, err)
		}
	}
}
