package flows

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pauses are sleeps on a locked thread, because the runtime's timers are late by up to a
// millisecond when nothing else runs.
type pauses struct{}

func newPauses() pauses {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // otherwise 50 us later
	return pauses{}
}

// longest is the longest sleep, which the end of ctx cannot shorten.
const longest = 20 * time.Millisecond

func (pauses) until(ctx context.Context, due time.Time) {
	for left := time.Until(due); left > 0 && ctx.Err() == nil; left = time.Until(due) {
		t := unix.NsecToTimespec(int64(min(left, longest)))
		_ = unix.Nanosleep(&t, nil) // the caller checks the time anyway
	}
}

func (pauses) close() { runtime.UnlockOSThread() }
