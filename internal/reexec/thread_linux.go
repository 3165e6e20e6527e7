package reexec

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnLastThread runs f on a thread that ends with f. It is for functions after which a thread cannot
// be reused: a thread that has entered a mount or PID namespace, or a cgroup, cannot leave it
// cleanly. The thread is never the first one of the process: that one cannot end alone, and /proc
// shows its namespaces and root directory as the process's.
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
