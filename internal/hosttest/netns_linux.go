package hosttest

import (
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// secondEnv names the test that is run in a namespace of its own.
const secondEnv = "RAILBED_HOSTTEST_SECOND"

// InNetns is InUserNS for what needs a network of its own and nothing else: the
// test runs a second time, alone, as the same user in a new network namespace, whose
// loopback device is up.
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

// InMounts is InNetns for what mounts: the namespace is one of mounts, of which the host
// sees none.
func InMounts(t *testing.T) bool {
	t.Helper()
	return inSecond(t, syscall.CLONE_NEWNS, "with mounts of its own")
}

// inSecond runs the test a second time, in a new namespace, and says whether this is
// that run.
func inSecond(t *testing.T, namespace uintptr, where string) bool {
	t.Helper()
	if os.Getenv(secondEnv) == t.Name() {
		return true
	}
	Need(t, Netns)
	command := exec.CommandContext(t.Context(), "/proc/self/exe",
		"-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), secondEnv+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: namespace} // which makes mounts private
	output, err := command.CombinedOutput()
	second(t, where, output, err)
	return false
}

// ownRun makes a /run, a /var/lib and a /dev/shm that end with the namespace of mounts, but for Railbed's
// own folder, in which both sides meet. It tells mount(8) to note nothing in /run/mount.
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

// WithOwnRun is a command for the host's root that runs in a new namespace of mounts, made by unshare(1)
// with these options, where what it writes to /run, /var/lib and /dev/shm ends with it. Container runtimes
// leave things there when they are first used on a host: Podman mounts /run/netns on itself and keeps a lock
// in /dev/shm, libcni keeps results in /var/lib/cni, and a killed containerd its sockets in /run.
func WithOwnRun(unshare []string, command ...string) *exec.Cmd {
	args := append([]string{"--mount"}, unshare...)
	return exec.Command("unshare", append(append(args, "sh", "-c", ownRun, "sh"), command...)...)
}
