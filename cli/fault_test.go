package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"railbed/fabric/softswitch"
	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

// TestFaultCommands adds faults to a running testbed, sees what they hit, and clears them.
func TestFaultCommands(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-fault"
	must(t, "up", writeFile(t, twoHostsOn(name, "soft")))
	t.Cleanup(func() { must(t, "down", name) })
	ping := func() int {
		return do(t, "exec", "h0", "-t", name, "--", "ping", "-4", "-c1", "-W0.3", "h1").code
	}
	must(t, "fault", "add", "h0", "--match", "icmp", "--drop", "every: 2", "-t", name)
	must(t, "fault", "add", "h1--leaf1", "a-to-b", "--name", "answers", "--delay", "{by: 1ms}", "--for", "1m",
		"-t", name)
	if first, second := ping(), ping(); first != 0 || second != 1 {
		t.Errorf("pings end with %d and %d, want 0 and 1", first, second)
	}
	var all []softswitch.FaultState
	list := must(t, "fault", "list", "-t", name, "-o", "json").stdout
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].Name != "fault-1" || all[0].Matched != 2 || all[0].Hit != 1 ||
		all[1].Name != "answers" || all[1].Hit < 1 {
		t.Errorf("faults %+v", all)
	}
	shown := must(t, "fault", "list", "-t", name).stdout
	if !strings.Contains(shown, "drop every 2 of icmp") {
		t.Errorf("the list is\n%s", shown)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"add", "h0"}, "exactly one of drop, delay"},
		{[]string{"add", "h0", "--drop", "nth: [3, 2]"}, "ascending order"},
		{[]string{"add", "h0", "--drop", "all", "--match", "railbed.depth > 1"}, "column 1"},
		{[]string{"add", "h9", "--drop", "all"}, `no port is at "h9"`},
		{[]string{"add", "--partition", "[[h0], [h9]]"}, "is no node"},
		{[]string{"add", "h0", "--truncate", "to: 70000B"}, "at most 65535B"},
		{[]string{"add", "h0", "--drop", "all", "--name", "answers"}, "in force"},
		{[]string{"clear", "other"}, "no fault of this name"},
		{[]string{"clear"}, "or --all"},
	} {
		got := do(t, append(append([]string{"fault"}, wrong.args...), "-t", name)...)
		if got.code == 0 || !strings.Contains(got.stderr, wrong.want) {
			t.Errorf("fault %v: code %d, %q, want %q", wrong.args, got.code, got.stderr, wrong.want)
		}
	}
	if shown := must(t, "fault", "clear", "fault-1", "-t", name).stdout; !strings.Contains(shown, "fault-1") {
		t.Errorf("cleared\n%s", shown)
	}
	must(t, "fault", "clear", "--all", "-t", name)
	if first, second := ping(), ping(); first != 0 || second != 0 {
		t.Errorf("pings end with %d and %d after the faults were cleared", first, second)
	}
	events := must(t, "events", "-t", name).stdout
	for _, kind := range []string{"fault.add", "fault.clear"} {
		if strings.Count(events, kind) != 2 {
			t.Errorf("events of kind %s:\n%s", kind, events)
		}
	}
}

// TestFaultsNeedSoftSwitches: the kernel's switches have none, and nothing changes.
func TestFaultsNeedSoftSwitches(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-fault-kernel"
	must(t, "up", writeFile(t, twoHostsOn(name, "router")))
	t.Cleanup(func() { must(t, "down", name) })
	got := do(t, "fault", "add", "h0", "--drop", "all", "-t", name)
	if got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "kind: soft") {
		t.Errorf("code %d, %q", got.code, got.stderr)
	}
}
