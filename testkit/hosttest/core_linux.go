package hosttest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// KeepOn pins a thread, 0 for the calling one, to one core.
func KeepOn(thread, core int) error {
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(thread, &set)
}

// OnFirstCore pins the calling goroutine's thread to its first core, until the returned function is called.
// Packets that the thread sends through kernel links then keep their order. Each core has its own queue for
// packets that have crossed a link, and a core that the host holds up delays only its own queue.
func OnFirstCore(t testing.TB) (undo func()) {
	t.Helper()
	runtime.LockOSThread()
	var before unix.CPUSet
	err := unix.SchedGetaffinity(0, &before)
	if err == nil {
		first := 0
		for !before.IsSet(first) {
			first++
		}
		err = KeepOn(0, first)
	}
	if err != nil {
		t.Fatalf("keep the sender on a core: %v", err)
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &before) // this set was allowed before
		runtime.UnlockOSThread()
	}
}
