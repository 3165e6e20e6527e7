package reexec

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Real-time priorities of the processes of a testbed, the switches' first: what
// the switches do late is no result, and a recorder that waits for a
// moment has its rings.
const (
	RecorderPriority = 1
	SwitchPriority   = 2
)

// RealTime makes every thread of the process, and those that they start, real-time
// threads (SCHED_RR) of a priority, so that they go before everything that the
// testbed runs, where the host allows it. It reports whether it did; in a user
// namespace it does not.
//
// Priority for some threads of a Go program is not enough. A thread waits for the
// others whenever the garbage collector stops the world, and for a scheduler's
// processor when it comes back from a system call, on a busy host up to 0.8 s;
// and where Go waits by yielding, a real-time thread starves the ordinary one
// that it waits for, for good. A nice value counts within a session's
// autogroup only (sched(7)).
func RealTime(priority int) bool {
	attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR,
		Priority: uint32(priority)}
	return EachThread(func(id int) error { return unix.SchedSetAttr(id, attributes, 0) }) == nil
}

// Batch has the calling process, and what it starts, stop nobody when it wakes up
// (SCHED_BATCH of sched(7)): it runs once who has the processor waits or has had a turn.
// Who hears a stream is woken by the first packet of a batch, and would stop who still
// sends the others. It is not for who waits for an answer before he goes on: behind a
// busy program he waits for its turn each time. The nice value stays, and so does another
// policy that somebody gave the process. It says whether the kernel let it.
func Batch() bool {
	priority := int32(0)
	return EachThread(func(id int) error {
		if now, err := unix.SchedGetAttr(id, 0); err != nil || now.Policy != unix.SCHED_NORMAL {
			return err
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(id), unix.SCHED_BATCH,
			uintptr(unsafe.Pointer(&priority))); errno != 0 {
			return errno
		}
		return nil
	}) == nil
}

// ProgramNice is the nice value of a node's programs where switches of an ordinary
// user run beside them, who may give his own programs less and no others more.
const ProgramNice = 10

// GiveWay lets other sessions go before the calling process's own where the kernel
// groups tasks by session (sched(7), autogroup), by nice. Nothing is changed where
// it does not. An ordinary user may change one in a tenth of a second, all users
// together, so that it tries for some time.
func GiveWay(nice int) {
	for range 20 {
		err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
		if !errors.Is(err, unix.EAGAIN) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// EachThread calls set with every thread of the process, until it fails.
// Threads that start meanwhile are found by a second look, or inherit what set
// did; those that end meanwhile do not count.
func EachThread(set func(id int) error) error {
	for range 2 {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		for _, entry := range entries {
			id, err := strconv.Atoi(entry.Name())
			if err != nil {
				return fmt.Errorf("list own threads: %w", err)
			}
			if err := set(id); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
