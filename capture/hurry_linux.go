package capture

import (
	"runtime"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
)

// hurry puts the calling goroutine's thread before everything that the testbed
// runs, where the host allows it: on a busy host a thread of equal rank waits
// for tenths of a second, longer than a ring lasts. A nice value does not help,
// because it counts within a session's autogroup only, and every worker is a
// session. The threads use some tenths of a core at full rate, far from where
// the kernel throttles real-time threads. They are not given back; they end
// with their goroutines. It reports whether the host allowed it; in a user
// namespace it does not, and larger rings must do.
func hurry() bool {
	runtime.LockOSThread()
	attributes := &unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_RR,
		Priority: reexec.RecorderPriority,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
	}
	return unix.SchedSetAttr(0, attributes, 0) == nil
}

// canHurry tries hurry on a thread that ends with it.
func canHurry() bool {
	answer := make(chan bool)
	go func() { answer <- hurry() }()
	return <-answer
}
