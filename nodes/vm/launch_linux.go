package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"railbed/testbed/reexec"
)

// launch is what the process that becomes QEMU is told over descriptor 3, where it
// says what went wrong; nothing is said when QEMU runs.
type launch struct {
	Args []string
	// User is whom QEMU becomes with Groups besides; 0 stays who it is.
	User   int
	Groups []int
	Nice   int
}

// qemuUser is whom QEMU runs as where Railbed is root: of the range that nobody
// assigns, so that no file and no process of the host is this user's (systemd,
// Users, Groups, UIDs and GIDs: 1879048192 to 2147483647 are unused).
const qemuUser = 2_000_000_000

// Places in QEMU's view of the host: what the guest sees of its files, and an
// empty file to hide others behind.
const (
	shareDir  = "/run/share"
	emptyFile = "/run/empty"
)

// hidden are the folders of the host that a guest does not see: its own are there,
// or what they hold is none of its business.
var hidden = []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/run", "/var/lock", "/root", "/home", "/lost+found"}

// secrets match files that a guest does not see.
var secrets = []string{"/etc/shadow*", "/etc/gshadow*", "/etc/ssh/*_key", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d"}

// Main becomes QEMU: first process of a PID namespace, in namespaces of its own.
func Main([]string) int {
	runtime.LockOSThread() // rights are a thread's; the others end with the exec
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
	if err := hideHost(); err != nil {
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
	// When memory runs out, a guest goes before its owner.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	if err := dropRights(l.User, l.Groups); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", program, syscall.Exec(program, l.Args, []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}))
}

// hideHost makes QEMU's view of the host's files, and below it the guest's, which
// is read-only.
func hideHost() error {
	if err := reexec.LeaveMountTree(); err != nil {
		return err
	}
	share, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone the host's mounts: %w", err)
	}
	defer unix.Close(share)
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	if err := errors.Join(os.Mkdir(shareDir, 0o755), os.WriteFile(emptyFile, nil, 0o444)); err != nil {
		return err
	}
	if err := unix.MoveMount(share, "", unix.AT_FDCWD, shareDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the host's files on %s: %w", shareDir, err)
	}
	for _, path := range hidden {
		if err := hide(shareDir + path); err != nil {
			return err
		}
	}
	for _, pattern := range secrets {
		matches, err := filepath.Glob(shareDir + pattern)
		if err != nil {
			return err
		}
		for _, path := range matches {
			if err := hide(path); err != nil {
				return err
			}
		}
	}
	for _, path := range []string{"/root", "/home", "/tmp", "/var/tmp"} { // QEMU needs none of them
		if err := hide(path); err != nil {
			return err
		}
	}
	// What the host mounts from now on is not seen.
	attributes := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(unix.AT_FDCWD, shareDir, unix.AT_RECURSIVE, attributes); err != nil {
		return fmt.Errorf("make %s read-only: %w", shareDir, err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc of QEMU: %w", err)
	}
	return nil
}

// hide puts an empty folder or file in the place of one. A link leads into what is
// hidden by itself, or out of the share, where the guest has its own.
func hide(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=4k")
	case info.Mode().IsRegular():
		err = unix.Mount(emptyFile, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// dropRights takes every capability from the calling thread, also for what it
// executes, and makes it another user.
func dropRights(user int, groups []int) error {
	all := make([]uintptr, 64) // more than any kernel has
	for capability := range all {
		all[capability] = uintptr(capability)
	}
	if err := reexec.DropBounding(all...); err != nil {
		return err
	}
	if user != 0 {
		if err := errors.Join(syscall.Setgroups(groups), syscall.Setresgid(user, user, user), syscall.Setresuid(user, user, user)); err != nil {
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
