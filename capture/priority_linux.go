package capture

import (
	"runtime"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
)

// raisePriority gives the calling goroutine's thread real-time priority over everything that the testbed
// runs, if the host allows it. On a busy host a thread of equal priority waits for tenths of a
// second, longer than a ring takes to fill. A nice value does not help: it counts only within a
// session's autogroup, and every worker is a session. At full rate the threads use some tenths of a
// core, far below the kernel's throttling of real-time threads. They stay locked to their
// goroutines and end with them. raisePriority reports whether the host allowed the priority. In a user
// namespace it does not, and larger rings must suffice.
func raisePriority() bool {
	runtime.LockOSThread()
	attributes := &unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_RR,
		Priority: reexec.RecorderPriority,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
	}
	return unix.SchedSetAttr(0, attributes, 0) == nil
}

// canRaisePriority tries raisePriority on a thread that ends afterwards.
func canRaisePriority() bool {
	answer := make(chan bool)
	go func() { answer <- raisePriority() }()
	return <-answer
}
