package reexec

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnLastThread runs f on a thread that ends with it: a thread that has entered a
// mount or PID namespace, or a control group, cannot leave it cleanly. It is not
// the first thread of the process, which cannot end alone and whose namespaces
// and root directory /proc shows as the process's.
func OnLastThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		// While this goroutine holds the first thread, others get another.
		err := OnLastThread(f)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
