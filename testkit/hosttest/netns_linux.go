package hosttest

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"testing"
)

// secondEnv names the test that runs in a namespace of its own.
const secondEnv = "RAILBED_HOSTTEST_SECOND"

// InNetns is like InUserNS, for tests that need only a network of their own. The test runs a second
// time, alone, as the same user in a new network namespace, whose loopback device is up. An ordinary user is
// root of a new user namespace there.
func InNetns(t *testing.T) bool {
	t.Helper()
	if inSecond(t, syscall.CLONE_NEWNET, "in a network namespace") {
		if output, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("bring up the loopback device: %v\n%s", err, output)
		}
		return true
	}
	return false
}

// InMounts is like InNetns for tests that mount: the test runs in a new mount namespace, whose
// mounts the host does not see.
func InMounts(t *testing.T) bool {
	t.Helper()
	return inSecond(t, syscall.CLONE_NEWNS, "with mounts of its own")
}

// inSecond runs the test a second time, in a new namespace, and reports whether this is the second
// run.
func inSecond(t *testing.T, namespace uintptr, where string) bool {
	t.Helper()
	if os.Getenv(secondEnv) == t.Name() {
		return true
	}
	inUserNS := os.Geteuid() != 0 && namespace == syscall.CLONE_NEWNET
	if inUserNS {
		Need(t, UserNS)
	} else {
		Need(t, Netns)
	}
	runtime.LockOSThread() // see InUserNS
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(t.Context(), "/proc/self/exe",
		"-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), secondEnv+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespace} // also makes mounts private
	if inUserNS {
		inNamespaces(command).SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | namespace
	}
	output, err := command.CombinedOutput()
	second(t, where, output, err)
	return false
}

// ownRun makes a /run, a /var/lib and a /dev/shm that end with the mount namespace. Railbed's own
// directory in /run stays shared with the host. The option -n keeps mount(8) from writing to
// /run/mount.
const ownRun = `set -e
mkdir -p -m 700 /run/railbed
mount -n -t tmpfs none /dev/shm
mkdir /dev/shm/railbed
mount -n --bind /run/railbed /dev/shm/railbed
mount -n -t tmpfs none /run
mkdir -m 700 /run/railbed
mount -n --move /dev/shm/railbed /run/railbed
rmdir /dev/shm/railbed
mount -n -t tmpfs none /var/lib
exec "$@"`

// WithOwnRun returns a command for the host's root that runs in a new mount namespace, made by
// unshare(1) with the given options. There its changes to /run, /var/lib and /dev/shm end with the
// namespace. Container runtimes leave files there when they are first used on a host. Podman mounts
// /run/netns on itself and keeps a lock in /dev/shm. Libcni keeps results in /var/lib/cni, and a
// killed containerd leaves its sockets in /run.
func WithOwnRun(unshare []string, command ...string) *exec.Cmd {
	args := append([]string{"--mount"}, unshare...)
	return exec.Command("unshare", append(append(args, "sh", "-c", ownRun, "sh"), command...)...)
}
