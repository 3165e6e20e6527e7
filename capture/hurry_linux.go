package capture

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
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
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	return unix.SchedSetAttr(0, attributes, 0) == nil
}

// canHurry tries hurry on a thread that ends with it.
func canHurry() bool {
	answer := make(chan bool)
	go func() { answer <- hurry() }()
	return <-answer
}

// hurryAll puts every thread of the process, and those that they start, before
// everything that the testbed runs, where the host allows it. Priority for one
// thread of a Go program is not enough: it waits for the others whenever the
// garbage collector stops the world, and for a scheduler's processor when it
// comes back from a system call; on a busy host that took up to 0.8 s.
func hurryAll() {
	attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	// Threads that start meanwhile are found by the second look, or inherit.
	for range 2 {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, entry := range entries {
			if thread, err := strconv.Atoi(entry.Name()); err == nil {
				_ = unix.SchedSetAttr(thread, attributes, 0) // as with hurry
			}
		}
	}
}
