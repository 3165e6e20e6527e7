package testbed_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/rundir"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

const guests = `
name: go-guests
fabric:
  topology: single-switch
  params: {hosts: 3}
  links: {default: {rate: 100mbit, delay: 50us, mtu: 4200}}
nodes:
  default: {memory: 320MiB}
  "h[0-1]": {runtime: vm, modules: [sch_netem]}
  h2: {runtime: netns, memory: 0B}
`

// TestGuests has two virtual machines and a netns node on one soft switch.
func TestGuests(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.VM, hosttest.Tap, hosttest.Ping)
	var warnings []string
	tb := upWith(t, guests, testbed.Options{Warn: func(text string) { warnings = append(warnings, text) }})
	told := slices.ContainsFunc(warnings, func(text string) bool {
		return strings.Contains(text, "virtual machines run without KVM")
	})
	if emulated := runsTCG(t, tb); told != emulated {
		t.Errorf("QEMU emulates the processors: %v; warnings: %q", emulated, warnings)
	}
	ctx := t.Context()
	run := func(node, program string, args ...string) (string, error) {
		output, err := tb.Node(node).Command(ctx, program, args...).CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	for _, way := range [][2]string{{"h0", "h1"}, {"h1", "h0"}, {"h2", "h0"}, {"h1", "h2"}} {
		for _, family := range []string{"-4", "-6"} {
			// As large as the link takes; the first may find a busy host late.
			size := map[string]string{"-4": "4172", "-6": "4152"}[family]
			if out, err := run(way[0], "ping", family, "-c3", "-i0.2", "-W20", "-Mdo", "-s"+size,
				way[1]); err != nil {
				t.Errorf("ping %s from %s to %s: %v\n%s", family, way[0], way[1], err, out)
			}
		}
	}
	if out, err := run("h0", "grep", "-c", "^sch_netem ", "/proc/modules"); err != nil || out != "1" {
		t.Errorf("sch_netem in h0: %q, %v", out, err)
	}
	if ours, err := os.ReadFile("/proc/sys/kernel/osrelease"); err != nil {
		t.Error(err)
	} else if theirs, err := run("h1", "uname", "-r"); err != nil ||
		theirs == strings.TrimSpace(string(ours)) {
		t.Errorf("h1 has the kernel %q, %v, and the host the same", theirs, err)
	}
	carrier := func(node, want string) {
		t.Helper()
		script := fmt.Sprintf("for i in $(seq 300); do [ $(cat /sys/class/net/eth0/carrier) = %s ] && exit "+
			"0; sleep 0.1; done; exit 1", want)
		if out, err := run(node, "sh", "-c", script); err != nil {
			t.Errorf("carrier of %s is not %s: %v %s", node, want, err, out)
		}
	}
	link := tb.Plan().Links[0].Name
	for _, state := range []struct{ state, carrier string }{{"down", "0"}, {"up", "1"}} {
		if err := tb.ChangeLink(ctx, supervisor.LinkRequest{Where: link, State: state.state}); err != nil {
			t.Fatal(err)
		}
		carrier("h0", state.carrier)
	}
	if out, err := run("h2", "ping", "-c1", "-W20", "h0"); err != nil {
		t.Errorf("ping after the link is up again: %v\n%s", err, out)
	}
	if done, err := tb.Converge(ctx, tb.Plan(), testbed.Options{}); err != nil || len(done.Repaired) > 0 {
		t.Errorf("converge: %+v, %v; want nothing to repair", done, err)
	}
	t.Run("Commands", func(t *testing.T) { commands(t, tb, tb.Node("h1")) })
	t.Run("Killed", func(t *testing.T) { killedWithGuests(t, tb) })
}

// killedWithGuests kills the supervisor, and waits for every QEMU to be gone.
func killedWithGuests(t *testing.T, tb *testbed.Testbed) {
	state := inspected(t, tb)
	var qemus []int // by pidfd
	for _, pid := range qemusOf(t, state.PID) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		qemus = append(qemus, fd)
	}
	if len(qemus) != 2 {
		t.Fatalf("%d QEMUs are children of the supervisor, want 2", len(qemus))
	}
	if err := unix.Kill(state.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i, fd := range qemus {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := 0, error(unix.EINTR)
		for deadline := time.Now().Add(time.Minute); errors.Is(err, unix.EINTR) &&
			time.Now().Before(deadline); {
			n, err = unix.Poll(poll, 60_000)
		}
		if n != 1 || err != nil {
			t.Errorf("QEMU %d outlives its supervisor: %v", i, err)
		}
	}
	<-tb.Done()
	if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
		t.Error(err)
	}
}

// qemusOf are the children of a process that are QEMU.
func qemusOf(t *testing.T, parent int) []int {
	t.Helper()
	return slices.DeleteFunc(childrenOf(t, parent), func(pid int) bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err != nil || !bytes.HasPrefix(name, []byte("qemu-system"))
	})
}

// runsTCG says how the QEMUs of a testbed run their guests: all alike.
func runsTCG(t *testing.T, tb *testbed.Testbed) (tcg bool) {
	t.Helper()
	for i, pid := range qemusOf(t, inspected(t, tb).PID) {
		arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		this := bytes.Contains(arguments, []byte("\x00-accel\x00tcg"))
		if i > 0 && this != tcg {
			t.Errorf("QEMU %d runs otherwise than the first", i)
		}
		tcg = this
	}
	return tcg
}

// childrenOf are the processes whose parent a process is.
func childrenOf(t *testing.T, parent int) (children []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, of int
		var state string
		if _, err := fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &of); err != nil ||
			of != parent {
			continue
		}
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	slices.Sort(children)
	return children
}
