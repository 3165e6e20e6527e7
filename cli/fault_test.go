package cli_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
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

// slowHosts has links at a rate that a guest reaches even on a busy host.
func slowHosts(name, kind string) string {
	return strings.Replace(twoHostsOn(name, kind), "}}\n", "}, links: {default: {rate: 100kbit}}}\n", 1)
}

// kernelFault is a scenario in which a bridge loses the second of three requests.
func kernelFault(name string) string {
	return slowHosts(name, "bridge") + `steps:
  - capture: {at: [all], file: run.pcapng}
  - fault: {name: lost, where: h1--leaf1 b-to-a, match: icmp.type == 8, drop: {nth: [2]}}
  - fault: {name: spoilt, where: "h0:eth0", match: icmp.type == 8, corrupt: {at: 90B, nth: [3]}}
  - exec: {nodes: [h0], command: [ping, -4, -n, -c4, -i0.2, -W1, h1]}
checks:
  - packets: {drops: {reason: fault, count: "== 1"}}
  - packets: {conservation: "*"}
  - packets: {lossless: {}}
  - packets: {rule: {name: answers, count: icmp.type == 0, at: h1, is: "== 2"}}
`
}

// programsWork reports whether this process may load eBPF programs.
func programsWork(t *testing.T) bool {
	t.Helper()
	return regexp.MustCompile(`(?m)^bpf-tc +ok `).MatchString(do(t, "doctor", "bpf-tc").stdout)
}

// TestFaultsWithoutPrograms: if the user may not load eBPF programs, faults at kernel links are UNSUPPORTED.
func TestFaultsWithoutPrograms(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	if programsWork(t) {
		t.Skip("this process may load eBPF programs: see TestFaultsOfPrograms")
	}
	const name = "cli-fault-kernel"
	must(t, "up", writeFile(t, twoHostsOn(name, "router")))
	t.Cleanup(func() { must(t, "down", name) })
	got := do(t, "fault", "add", "h0", "--drop", "all", "-t", name)
	if got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "load an eBPF program: ") ||
		!strings.Contains(got.stderr, "kind: soft") {
		t.Errorf("code %d, %q", got.code, got.stderr)
	}
	if all := must(t, "fault", "list", "-t", name, "-o", "json").stdout; strings.TrimSpace(all) != "[]" {
		t.Errorf("faults %s", all)
	}
	run := do(t, "run", writeFile(t, kernelFault(name+"-run")), "--out", filepath.Join(t.TempDir(), "out"))
	if run.code != verdict.ExitUnsupported || !strings.Contains(run.stdout+run.stderr, "bpf-tc") {
		t.Errorf("code %d\n%s%s", run.code, run.stdout, run.stderr)
	}
}

// TestFaultsOfPrograms harms packets at a bridge and at a node, in a guest whose kernel has BPF.
func TestFaultsOfPrograms(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root) // an ordinary user's guest would be the same one again
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "bridge", "sch_tbf", "sch_ingress",
		"cls_bpf", "overlay"}, CPUs: 2, Timeout: 5 * time.Minute}) {
		return
	}
	if !programsWork(t) {
		t.Fatal("the guest refuses eBPF programs")
	}
	faultsOfPrograms(t)
}

// TestFaultsOfProgramsHere is TestFaultsOfPrograms with this kernel.
func TestFaultsOfProgramsHere(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	if !programsWork(t) {
		t.Skip("this process may not load eBPF programs: see TestFaultsWithoutPrograms")
	}
	faultsOfPrograms(t)
}

func faultsOfPrograms(t *testing.T) {
	const name = "cli-fault-programs"
	out := filepath.Join(t.TempDir(), "out")
	if run := do(t, "run", writeFile(t, kernelFault(name)), "--out", out); run.code != verdict.ExitPass {
		t.Errorf("code %d\n%s%s", run.code, run.stdout, run.stderr)
	}
	if tables := do(t, "report", "-v", out).stdout; !strings.Contains(tables, "leaf1:p1 1 of 4") {
		t.Error(tables)
	}
	must(t, "up", writeFile(t, slowHosts(name, "router")))
	t.Cleanup(func() {
		must(t, "down", name)
		noTrace(t, name)
	})
	ping := func() int {
		return do(t, "exec", "h0", "-t", name, "--", "ping", "-4", "-c1", "-W1", "h1").code
	}
	must(t, "fault", "add", "leaf1", "--match", "icmp.type == 0", "--drop", "every: 2", "-t", name)
	if first, second := ping(), ping(); first != 0 || second != 1 {
		t.Errorf("pings end with %d and %d, want 0 and 1", first, second)
	}
	if shown := must(t, "fault", "clear", "--all", "-t", name).stdout; !strings.Contains(shown,
		"drop every 2 of icmp.type == 0") {
		t.Errorf("cleared\n%s", shown)
	}
	if code := ping(); code != 0 {
		t.Errorf("a ping ends with %d after the fault was cleared", code)
	}
	if hosttest.Probe(hosttest.Root) == nil {
		slowRunning(t, name) // a guest has version 2 of control groups
	}
}

// TestFaultsThatNoProgramMakes: validate reports them at their position, and reads nothing of the host.
func TestFaultsThatNoProgramMakes(t *testing.T) {
	for fault, want := range map[string]string{
		"{where: h0, match: 'udp && frame contains \"GET\"', drop: {}}": ":4:31: invalid value: column 8: " +
			"contains for frame is not possible at a kernel link or switch; want a comparison of another " +
			"field",
		"{where: h0, match: vlan.id == 3, drop: {}}": ":4:31: invalid value: column 1: vlan.id is not " +
			"readable",
		"{where: h0, delay: {by: 1ms}}":               ":4:24: delay needs soft switches",
		"{where: h0, drop: {flows: 1%}}":              ":4:38: a share of flows needs soft switches",
		"{where: h0, drop: {nth: [5], per: message}}": ":4:46: a fault of messages needs soft switches",
	} {
		text := twoHostsOn("cli-fault-wrong", "bridge") + "steps:\n  - fault: " + fault + "\n"
		if got := do(t, "validate", writeFile(t, text)); got.code != verdict.ExitUsage ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("%s: code %d, %q, want %q", fault, got.code, got.stderr, want)
		}
	}
}
