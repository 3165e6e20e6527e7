package cli_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/verdict"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// faultsOf returns the faults of a command's answer.
func faultsOf(t *testing.T, args ...string) (all []softswitch.FaultState) {
	t.Helper()
	out := must(t, append(args, "-o", "json")...).stdout
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// TestNodeFaultCommands stops and kills programs of nodes of a running testbed, fills a disk, and clears
// these faults.
func TestNodeFaultCommands(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-nodefault"
	must(t, "up", writeFile(t, twoHostsOn(name, "soft")))
	t.Cleanup(func() { must(t, "down", name) })
	program := command("exec", "h1", "-t", name, "--", "sh", "-c", "tail -f /dev/null; echo ended")
	var printed strings.Builder
	program.Stdout = &printed
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	const look = `for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = tail ] && grep State $p/status; done
true`
	state := func() string { return must(t, "exec", "h1", "-t", name, "--", "sh", "-c", look).stdout }
	hosttest.Until(t, "the program", func() bool { return state() != "" })
	add := func(args ...string) softswitch.FaultState {
		t.Helper()
		return faultsOf(t, append([]string{"fault", "add", "-t", name}, args...)...)[0]
	}

	if f := add("h1", "--hang", "--program", "ta*", "--name", "still"); f.Hit != 1 || f.Over {
		t.Errorf("hang: %+v", f)
	}
	if got := state(); !strings.Contains(got, "stopped") {
		t.Errorf("the program is %q", got)
	}
	write := func(node string) int {
		return do(t, "exec", node, "-t", name, "--", "sh", "-c", "echo some > /tmp/file").code
	}
	if f := add("h1", "--disk", "full"); f.Name != "fault-1" || write("h1") == 0 {
		t.Errorf("a program writes to a full disk: %+v", f)
	}
	all := faultsOf(t, "fault", "list", "-t", name)
	if len(all) != 2 || all[0].Name != "still" || all[0].Places[0].Port != "h1" || all[1].Disk != "full" {
		t.Errorf("faults %+v", all)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"h9", "--crash"}, `no node is at "h9"`},
		{[]string{"--crash", "--rank", "7"}, "there is no rank 7"},
		{[]string{"h0", "--crash", "--hang"}, "exactly one of them"},
		{[]string{"h0", "--drop", "all", "--program", "tail"}, "only crash and hang are faults of programs"},
		{[]string{"h0", "--clock", "jump: -10s"}, "want nodes with runtime: vm"},
		{[]string{"h0", "--slow", "0.001"}, "want a number of cores from 0.01"},
		{[]string{"h0", "--drop", "all", "--name", "still"}, "a fault of this name is in force"},
		{[]string{"h*", "--disk", "full"}, "fill the disk of h1: exit code 1, signal 0: another fault"},
	} {
		got := do(t, append([]string{"fault", "add", "-t", name}, wrong.args...)...)
		if got.code == 0 || !strings.Contains(got.stderr, wrong.want) {
			t.Errorf("fault add %v: code %d, %q, want %q", wrong.args, got.code, got.stderr, wrong.want)
		}
	}
	if write("h0") != 0 {
		t.Error("a fault that failed to begin at h1 is in force at h0")
	}
	cleared := faultsOf(t, "fault", "clear", "--all", "-t", name)
	if len(cleared) != 2 || !cleared[0].Over || write("h1") != 0 || !strings.Contains(state(), "sleeping") {
		t.Errorf("the program is %q; cleared %+v", state(), cleared)
	}

	ping := func() int {
		return do(t, "exec", "h0", "-t", name, "--", "ping", "-4", "-c1", "-W0.3", "h1").code
	}
	if f := add("h1", "--crash", "--name", "dead"); f.Hit < 2 || ping() == 0 { // sh and tail
		t.Errorf("crash: %+v", f)
	}
	if err := program.Wait(); err == nil || strings.Contains(printed.String(), "ended") {
		t.Errorf("the program ended with %v and %q", err, printed.String())
	}
	must(t, "fault", "clear", "dead", "-t", name)
	if ping() != 0 {
		t.Error("the links of a node stay down after its crash was cleared")
	}
	add("h1", "--crash", "--name", "dead", "--for", "200ms")
	hosttest.Until(t, "the end of a crash for 200ms",
		func() bool { return faultsOf(t, "fault", "list", "-t", name)[0].Over })
	if ping() != 0 {
		t.Error("the links of a node stay down after the time of its crash")
	}
}

// TestGuestFaultCommands changes the clock and the memory of a running virtual machine.
func TestGuestFaultCommands(t *testing.T) {
	hosttest.Need(t, hosttest.VM, hosttest.Tap)
	const name = "cli-guestfault"
	must(t, "up", writeFile(t, twoHosts(name)+"nodes: {h1: {runtime: vm}}\n"))
	t.Cleanup(func() { must(t, "down", name) })
	exec := func(args ...string) outcome {
		return do(t, append([]string{"exec", "h1", "-t", name, "--"}, args...)...)
	}
	ahead := func() time.Duration {
		t.Helper()
		seconds, err := strconv.ParseInt(strings.TrimSpace(exec("date", "+%s").stdout), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(seconds, 0)).Round(time.Hour)
	}
	fault := func(command string, args ...string) softswitch.FaultState {
		t.Helper()
		return faultsOf(t, append([]string{"fault", command, "-t", name}, args...)...)[0]
	}
	allocates := func() bool { return exec("sh", "-c", "head -c 96M /dev/zero | tail -c 96M >&2").code == 0 }

	if f := fault("add", "h1", "--clock", "jump: -10h"); f.Hit != 1 || ahead() != -10*time.Hour {
		t.Errorf("the clock is %v ahead: %+v", ahead(), f)
	}
	fault("add", "h1", "--clock", "drift: 100ppm", "--name", "drift")
	got := do(t, "fault", "add", "h1", "--clock", "drift: 100000ppm", "-t", name)
	if got.code == 0 || !strings.Contains(got.stderr, "the drifts add up to 100100ppm") {
		t.Errorf("code %d: %s", got.code, got.stderr)
	}
	// Parts that run in the node do not need memory of its programs.
	if f := fault("add", "h1", "--memory", "1MiB", "--name", "none"); f.Hit != 0 {
		t.Errorf("%+v", f)
	}
	if f := fault("clear", "drift"); !f.Over {
		t.Errorf("%+v", f)
	}
	fault("clear", "none")
	fault("add", "h1", "--memory", "64MiB", "--name", "tight")
	if allocates() {
		t.Error("96 MiB fit into 64 MiB")
	}
	all := faultsOf(t, "fault", "list", "-t", name)
	if len(all) != 2 || all[0].Name != "fault-1" || all[1].Hit != 1 || all[1].Places[0].Killed == 0 {
		t.Errorf("faults %+v", all)
	}
	if must(t, "fault", "clear", "--all", "-t", name); !allocates() || ahead() != 0 {
		t.Errorf("the faults did not end: the clock is %v ahead", ahead())
	}
}

// TestSlowNodeCommand slows a program that started before the fault.
func TestSlowNodeCommand(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-slow"
	must(t, "up", writeFile(t, twoHostsOn(name, "soft")))
	t.Cleanup(func() { must(t, "down", name) })
	if hosttest.Probe(hosttest.Root) != nil {
		got := do(t, "fault", "add", "h1", "--slow", "0.1", "-t", name)
		if got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "run as root") {
			t.Errorf("code %d: %s", got.code, got.stderr)
		}
		return
	}
	slowRunning(t, name)
}

// slowRunning slows a node of a running testbed, as root.
func slowRunning(t *testing.T, name string) {
	t.Helper()
	busy := command("exec", "h1", "-t", name, "--", "sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	throttled := func() time.Duration {
		var state supervisor.State
		out := must(t, "inspect", name, "-o", "json").stdout
		if err := json.Unmarshal([]byte(out), &state); err != nil {
			t.Fatal(err)
		}
		return state.Nodes[1].Programs.Throttled
	}
	const processes = `ls -d /proc/[0-9]* | wc -l`
	hosttest.Until(t, "the loop", func() bool {
		// init, the loop, and the command itself: sh, ls and wc
		return must(t, "exec", "h1", "-t", name, "--", "sh", "-c", processes).stdout >= "5"
	})
	if f := faultsOf(t, "fault", "add", "h1", "--slow", "0.1", "-t", name)[0]; f.Hit != 1 {
		t.Errorf("%+v", f)
	}
	hosttest.Until(t, "a program that the limit holds back", func() bool { return throttled() > 0 })
	must(t, "fault", "clear", "--all", "-t", name)
	must(t, "fault", "add", "h1", "--crash", "-t", name)
	if err := busy.Wait(); err == nil {
		t.Error("the program survived a crash")
	}
	got := do(t, "fault", "add", "h1", "--memory", "64MiB", "-t", name)
	if got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "such as memory: 4GiB") {
		t.Errorf("code %d: %s", got.code, got.stderr)
	}
}
