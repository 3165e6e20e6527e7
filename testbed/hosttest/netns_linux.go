package hosttest

import (
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// netnsEnv names the test that is run in a network namespace of its own.
const netnsEnv = "RAILBED_HOSTTEST_NETNS"

// InNetns is InUserNS for what needs a network of its own and nothing else: the
// test runs a second time, alone, as the same user in a new network namespace, whose
// loopback device is up.
func InNetns(t *testing.T) bool {
	t.Helper()
	if os.Getenv(netnsEnv) == t.Name() {
		if output, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("bring up the loopback device: %v\n%s", err, output)
		}
		return true
	}
	Need(t, Netns)
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1")
	command.Env = append(os.Environ(), netnsEnv+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	output, err := command.CombinedOutput()
	second(t, "in a network namespace", output, err)
	return false
}
