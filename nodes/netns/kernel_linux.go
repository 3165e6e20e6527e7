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

// A node may write only to those files of the kernel that belong to its own namespaces. The others
// are the host's. Installers and tuning scripts may set the host's core_pattern, trigger its SysRq
// keys or move its interrupts. In a node that would change the host and every other testbed.
// Container runtimes mask the same files (OCI runtime specification, config-linux.md, maskedPaths
// and readonlyPaths). The lists here are the defaults of runc and Docker.
//
// This guards against accidents. A root program of a node has CAP_SYS_ADMIN, which it needs to
// mount and to make namespaces. With that capability it can also mount /proc once more.

// ownSettings are patterns of the files below /proc/sys that belong to a node: to its network, IPC,
// UTS and PID namespace.
var ownSettings = []string{
	"net", "fs/mqueue", "kernel/hostname", "kernel/domainname", "kernel/ns_last_pid",
	"kernel/sem", "kernel/shm*", "kernel/msg*", "kernel/sem_next_id", "kernel/auto_msgmni",
}

// hiddenKernel are files and directories with information on the host's hardware, memory, timers
// and users' keys.
var hiddenKernel = []string{
	"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
}

// writableKernel are the entries of /proc that stay as they are. A write to a file of pressure
// affects only the open file.
var writableKernel = []string{"sys", "pressure"}

// hostCapabilities are the rights that no namespace has a share of. With them a process can load
// modules, access the hardware's memory and ports, start another kernel, and set the clock and its
// alarms. It can also read the kernel's log, and change audit and security modules.
var hostCapabilities = []uintptr{
	unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_WAKE_ALARM,
	unix.CAP_SYSLOG, unix.CAP_AUDIT_CONTROL, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE,
}

// dropHostCapabilities drops them from the processes that the calling thread starts. If the
// supervisor may not drop them (CAP_SETPCAP, which some containers lack), they stay.
func dropHostCapabilities() error {
	if err := reexec.DropBounding(hostCapabilities...); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// maskKernel hides files of the kernel and makes the host's files read-only.
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
	// Other entries are listed at run time, because kernels differ.
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("list /proc: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join("/proc", entry.Name())
		info, err := entry.Info()
		if err != nil || ofProcess(entry.Name()) || slices.Contains(writableKernel, entry.Name()) {
			continue // an error means a process that has ended
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

// hide mounts an empty file or directory over a path. It does nothing if the kernel lacks the path.
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

// bind mounts a file or directory, with the mounts below it, at another place.
func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s over %s: %w", source, target, err)
	}
	return nil
}

// bindReadOnly is bind with a target that is read-only through this mount. Mounts below it stay as
// they are.
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
