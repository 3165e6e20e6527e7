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

// Real-time priorities of a testbed's processes. The switches have the highest: a switch that is
// late makes the result worthless, while a recorder that waits for a moment has its rings.
const (
	RecorderPriority = 1
	SwitchPriority   = 2
)

// RealTime makes every thread of the process, and every thread that they start, a real-time thread
// (SCHED_RR) of this priority, where the host allows it. They then run before all other processes
// of the testbed. RealTime reports whether it succeeded; in a user namespace it does not.
//
// Priority for some threads of a Go program is not enough. A thread waits for the others whenever
// the garbage collector stops the world. It also waits for a scheduler's processor when it returns
// from a system call, up to 0.8 s on a busy host. And where Go waits by yielding, a real-time
// thread starves for good the ordinary thread that it waits for. A nice value only counts within a
// session's autogroup (sched(7)).
func RealTime(priority int) bool {
	attributes := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR,
		Priority: uint32(priority)}
	return EachThread(func(id int) error { return unix.SchedSetAttr(id, attributes, 0) }) == nil
}

// Batch keeps the calling process, and its children, from preempting other processes when they wake
// up (SCHED_BATCH of sched(7)). A process then runs once the running process waits or has used its
// time slice. The receiver of a stream is woken by the first packet of a batch; otherwise it would
// preempt the sender, which still sends the others. Batch is not for a process that waits for an
// answer before it continues: behind a busy program it waits for its time slice each time. The nice
// value stays unchanged, and so does another scheduling policy that was set before. Batch reports
// whether the kernel allowed it.
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

// ProgramNice is the nice value of a node's programs where switches of an ordinary user run beside
// them. An ordinary user can only lower the priority of programs, not raise the priority of the
// switches.
const ProgramNice = 10

// GiveWay sets the nice value of the calling process's session, so that other sessions run first,
// where the kernel groups tasks by session (sched(7), autogroup). Elsewhere it changes nothing. The
// kernel allows ordinary users, all together, one such change in a tenth of a second, so GiveWay
// retries for some time.
func GiveWay(nice int) {
	for range 20 {
		err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
		if !errors.Is(err, unix.EAGAIN) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// EachThread calls set for every thread of the process, until set fails. Threads that start
// meanwhile are found by a second pass, or inherit the setting. Threads that end meanwhile are
// ignored.
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
