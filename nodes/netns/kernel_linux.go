package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"railbed/internal/reexec"
)

// Of the kernel's files a node may write to those of its own namespaces. The others are the
// host's: a program of a node that sets the host's core_pattern, presses its SysRq keys or moves its
// interrupts, as installers and tuning scripts do, would change the host and every other testbed.
// Container runtimes mask the same files (OCI runtime specification, config-linux.md, maskedPaths and
// readonlyPaths; the lists are those of runc's and Docker's defaults).
//
// This guards against accidents. A root program of a node has CAP_SYS_ADMIN, without which it
// could neither mount nor make namespaces, and with which it can mount /proc once more.

// ownSettings are the files below /proc/sys that are a node's own, as patterns: of its network,
// IPC, UTS and PID namespace.
var ownSettings = []string{
	"net", "fs/mqueue", "kernel/hostname", "kernel/domainname", "kernel/ns_last_pid",
	"kernel/sem", "kernel/shm*", "kernel/msg*", "kernel/sem_next_id", "kernel/auto_msgmni",
}

// hiddenKernel are files and directories that tell about the host's hardware, its memory, its
// timers and the keys of its users.
var hiddenKernel = []string{
	"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
}

// writableKernel are the entries of /proc that stay as they are. What is written to a file of
// pressure belongs to the open file.
var writableKernel = []string{"sys", "pressure"}

// hostCapabilities are the rights that no namespace has a share of: to load modules, access the
// hardware's memory and ports, start another kernel, set the clock and its alarms, read the kernel's log,
// and change audit and security modules.
var hostCapabilities = []uintptr{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_WAKE_ALARM,
	unix.CAP_SYSLOG, unix.CAP_AUDIT_CONTROL, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
}

// dropHostCapabilities takes them from what the calling thread starts. A supervisor that may not
// (CAP_SETPCAP, which some containers lack) leaves them.
func dropHostCapabilities() error {
	if err := reexec.DropBounding(hostCapabilities...); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// maskKernel hides files of the kernel and makes the host's read-only.
func maskKernel() error {
	for _, pattern := range ownSettings {
		paths, err := filepath.Glob("/proc/sys/" + pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := bind(path, path); err != nil {
				return err
			}
		}
	}
	if err := bindReadOnly("/proc/sys", "/proc/sys"); err != nil {
		return err
	}
	for _, path := range hiddenKernel {
		if err := hide(path); err != nil {
			return err
		}
	}
	// The rest is found and not listed, because kernels differ.
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list /proc: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join("/proc", entry.Name())
		info, err := entry.Info()
		if err != nil || ofProcess(entry.Name()) || slices.Contains(writableKernel, entry.Name()) {
			continue // an error is a process that has ended
		}
		if slices.Contains(hiddenKernel, path) {
			continue
		}
		if info.IsDir() || info.Mode().IsRegular() && info.Mode()&0o222 != 0 {
			if err := bindReadOnly(path, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofProcess reports whether an entry of /proc is a process.
func ofProcess(name string) bool { return name[0] >= '0' && name[0] <= '9' }

// hide puts an empty file or directory in the place of one; what the kernel lacks needs none.
func hide(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return bind(os.DevNull, path)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", kernelFlags|unix.MS_RDONLY,
		"size=0,nr_inodes=1"); err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// bind shows a file or directory, with the mounts below it, at another place.
func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s over %s: %w", source, target, err)
	}
	return nil
}

// bindReadOnly is bind whose target nobody can write to through this mount. Mounts below it
// stay as they are.
func bindReadOnly(source, target string) error {
	if err := bind(source, target); err != nil {
		return err
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kernelFlags,
		""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}
