package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
)

// launch is the configuration of the process that becomes QEMU. The process reads it from
// descriptor 3, and writes an error there. If QEMU starts, it writes nothing.
type launch struct {
	Args []string
	// User is the user id that QEMU gets, with the additional Groups. 0 keeps the present user.
	User   int
	Groups []int
	Nice   int
	// Private are directories of the testbed's user.
	Private []string
}

// qemuUser is the user id of QEMU where Railbed is root. It is of a range that is never assigned,
// so no file and no process of the host belongs to it. The range is from systemd's page Users,
// Groups, UIDs and GIDs: 1879048192 to 2147483647 are unused.
const qemuUser = 2_000_000_000

// Main becomes QEMU: first process of a PID namespace, in namespaces of its own.
func Main([]string) int {
	runtime.LockOSThread() // rights are a thread's; the other threads end with the exec
	channel := os.NewFile(3, "launch")
	unix.CloseOnExec(3)
	err := become(channel)
	fmt.Fprint(channel, err)
	return 1
}

// become returns only if it fails.
func become(channel *os.File) error {
	var l launch
	if err := json.NewDecoder(channel).Decode(&l); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := hideHost(l.Private); err != nil {
		return err
	}
	program, err := exec.LookPath(l.Args[0])
	if err != nil {
		return err
	}
	if l.Nice > 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, l.Nice); err != nil {
			return fmt.Errorf("set nice %d: %w", l.Nice, err)
		}
	}
	// When memory runs out, a guest is killed before its owner.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	if err := dropRights(l.User, l.Groups); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", program,
		syscall.Exec(program, l.Args, []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}))
}

// dropRights drops every capability of the calling thread, also for programs that it executes, and
// changes its user.
func dropRights(user int, groups []int) error {
	all := make([]uintptr, 64) // more than any kernel has
	for capability := range all {
		all[capability] = uintptr(capability)
	}
	if err := reexec.DropBounding(all...); err != nil {
		return err
	}
	if user != 0 {
		if err := errors.Join(syscall.Setgroups(groups), syscall.Setresgid(user, user, user),
			syscall.Setresuid(user, user, user)); err != nil {
			return fmt.Errorf("become user %d: %w", user, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return nil
}
