package reexec

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnLastThread runs f on a thread of its own, which ends when f returns. Use it if f enters a mount
// namespace, a PID namespace or a cgroup, because the thread cannot leave these cleanly.
//
// OnLastThread never runs f on the main thread of the process. The main thread cannot end alone.
// /proc/PID shows the namespaces and the root directory of the main thread for the whole process.
func OnLastThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		// This goroutine holds the first thread, so f runs on another one.
		err := OnLastThread(f)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
