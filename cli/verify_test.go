package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/pcapng"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// writeCapture makes a capture of one frame of the given length at the first of some taps,
// with comments of a switch.
func writeCapture(t *testing.T, tap string, length int, comments ...string) string {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{Application: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(tap, ",") {
		if _, err := w.AddInterface(pcapng.Interface{Name: name, LinkType: pcapng.LinkEthernet}); err != nil {
			t.Fatal(err)
		}
	}
	packet := pcapng.Packet{Time: 1, Data: make([]byte, 60), Length: length, Has: pcapng.HasFlags,
		Flags: pcapng.Outbound}
	copy(packet.Data[12:], []byte{8, 0, 0x45, byte(wire.CE), 0, 46, 12: 10, 13: 0, 14: 0, 15: 1}) // of IPv4
	for _, comment := range comments {
		packet.Comments = append(packet.Comments, []byte(comment))
	}
	if err := w.WritePacket(&packet); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestVerify(t *testing.T) {
	testbed := filepath.Join(t.TempDir(), "x.yaml")
	text := "name: x\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n"
	if err := os.WriteFile(testbed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	short, long := writeCapture(t, "h0:eth0", 1514), writeCapture(t, "h0:eth0", 1515)
	keys := filepath.Join(t.TempDir(), "ar.keys")
	if err := os.WriteFile(keys, []byte("RD_SECRET "+strings.Repeat("5e", 32)+"\nRD_LIFE 0123456789abcdef\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.pcapng")
	whole, err := os.ReadFile(short)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no frame too long": {[]string{short, "--mtu", "1500"}, 0, "0 of 1 packet was longer"},
		"a frame too long":  {[]string{long, "--mtu", "1500"}, 1, "h0:eth0: 1 packet over the MTU of 1500"},
		"by the testbed": {[]string{long, "--testbed-file", testbed}, 1,
			"h0:eth0: 1 packet over the MTU of 1500"},
		"nothing to judge": {[]string{short}, 5,
			"without --testbed-file or --plan the cluster is not known"},
		"keys": {[]string{short, "--mtu", "1500", "--keys", keys}, 0,
			"0 of 1 packet was longer"},
		"no keys": {[]string{short, "--mtu", "1500", "--keys", testbed}, 2,
			"no keys, want a line RD_SECRET"},
		"keys not there": {[]string{short, "--mtu", "1500", "--keys", testbed + "s"}, 2, "no such file"},
		"cut":            {[]string{cut, "--mtu", "1500"}, 5, "the capture is truncated"},
		"no file":        {[]string{short + "x"}, 2, "no such file"},
		"not a capture":  {[]string{testbed}, 2, "neither pcapng nor pcap"},
		"not a ratio":    {[]string{short, "--min-share", "2"}, 2, "--min-share"},
		"a bare ratio": {[]string{short, "--tolerance", "1"}, 2,
			"--tolerance: ratio \"1\": want 1% or 100%, because a bare number can mean either"},
		"no such fidelity":   {[]string{short, "--fidelity", "good"}, 2, "want faithful or degraded"},
		"two clusters":       {[]string{short, "--plan", "x", "--testbed-file", "y"}, 2, "give one of them"},
		"workload not known": {[]string{short, "--workload", testbed}, 2, testbed},
	} {
		code, stdout, stderr := railbed("", append([]string{"verify"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, c.code, c.says, stdout, stderr)
		}
	}
	code, stdout, _ := railbed(string(whole), "verify", "-", "--mtu", "1500", "-o", "json")
	var report struct {
		Verdict string
		Capture struct{ Packets int }
		Checks  []struct{ Name, Verdict string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || report.Verdict != "PASS" ||
		report.Capture.Packets != 1 || report.Checks[0].Name != "mtu" {
		t.Errorf("exit %d, %v, %s", code, err, stdout)
	}
}

// TestVerifyReadsPlans hands the output of "railbed plan" to "railbed verify".
func TestVerifyReadsPlans(t *testing.T) {
	const text = "name: x\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, " +
		"hosts-per-leaf: 2}\n"
	code, stdout, stderr := railbed(text, "plan", "-", "-o", "json")
	if code != 0 {
		t.Fatal(stderr)
	}
	name := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(name, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = railbed("", "verify", writeCapture(t, "h0:eth0", 100), "--plan", name)
	for _, check := range []string{"conservation *", "path-spread *", "fidelity", "mtu"} {
		if !strings.Contains(stdout, check) {
			t.Errorf("nothing of %s", check)
		}
	}
	if code != 5 {
		t.Errorf("exit %d:\n%s%s", code, stdout, stderr)
	}
}

// TestVerifyReadsRuns judges the recordings of a run's directory with the run's plan.
func TestVerifyReadsRuns(t *testing.T) {
	const file = "name: x\nfabric: {topology: single-switch, params: {hosts: 2}}\n"
	code, plan, stderr := railbed(file, "plan", "-",
		"-o", "json")
	if code != 0 {
		t.Fatal(stderr)
	}
	capture, err := os.ReadFile(writeCapture(t, "h0:eth0", 100))
	if err != nil {
		t.Fatal(err)
	}
	run := t.TempDir()
	for _, step := range []struct{ file, text, want string }{
		{"plan.json", plan, "the run has no recording"},
		{"a.pcapng", string(capture), "conservation *"},
		{"b.pcapng", string(capture), ": 1 packet of 1 tap"}, // which is in both
	} {
		if err := os.WriteFile(filepath.Join(run, step.file), []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stdout, stderr := railbed("", "verify", run); !strings.Contains(stdout+stderr, step.want) {
			t.Errorf("with %s: %s%s, want %q", step.file, stdout, stderr, step.want)
		}
	}
}

// TestVerifyKnowsTheChecksOfFiles gives each check that a scenario file can ask for
// to "railbed verify".
func TestVerifyKnowsTheChecksOfFiles(t *testing.T) {
	capture := writeCapture(t, "h0:eth0,leaf1:p0", 100)
	workload := filepath.Join(t.TempDir(), "ar.json")
	text := `{"name": "ar", "ranks": [{"rank": 0, "node": "h0", "nic": "eth0", "addr": "10.0.0.1", "port": 7000, "expected": "1KB"}]}`
	if err := os.WriteFile(workload, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, help, _ := railbed("", "verify", "--help")
	args := []string{"verify", capture, "--workload", workload, "-o", "json"}
	for _, example := range verify.Examples() {
		args = append(args, "--check", example)
		if !strings.Contains(help, "  "+example+"\n") {
			t.Errorf("verify --help does not show %s", example)
		}
	}
	code, stdout, stderr := railbed("", args...)
	var report struct {
		Checks []struct{ Name, Verdict, Summary string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil ||
		code != verdict.ExitInconclusive && code != verdict.ExitFail {
		t.Fatalf("exit %d, %v:\n%s%s", code, err, stdout, stderr)
	}
	kinds := spec.PacketChecks()
	if len(report.Checks) != len(kinds) {
		t.Fatalf("%d checks were judged, want %q", len(report.Checks), kinds)
	}
	for i, check := range report.Checks {
		if kind, _, _ := strings.Cut(check.Name, " "); kind != kinds[i] ||
			check.Verdict == "PASS" && kind != "deadlock" {
			t.Errorf("%+v, want %s", check, kinds[i])
		}
	}
}

func TestVerifyNamedChecks(t *testing.T) {
	whole := writeCapture(t, "leaf1:p0", 100)
	dropped := writeCapture(t, "leaf1:p0", 2000, "railbed verdict=drop reason=tail depth=9000")
	marked := writeCapture(t, "leaf1:p0", 100, "railbed verdict=mark reason=ecn depth=9000")
	file := filepath.Join(t.TempDir(), "x.yaml")
	workload := filepath.Join(t.TempDir(), "ar.json")
	for name, text := range map[string]string{
		file:     "name: x\nfabric: {topology: single-switch, params: {hosts: 2}}\n",
		workload: `{"name": "ar", "ranks": [{"rank": 0, "node": "h0", "nic": "eth0", "addr": "10.0.0.1", "port": 7000, "expected": "1KB"}]}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none, some := `drops: {reason: tail, count: "== 0"}`, `drops: {reason: tail, count: ">= 1"}`
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"none dropped": {[]string{whole, "--check", none}, verdict.ExitInconclusive,
			"without a plan it is not known whether leaf1:p0 record drops"},
		"one dropped": {[]string{dropped, "--check", none}, verdict.ExitFail,
			"packets dropped: 1, want == 0"},
		"as was wanted": {[]string{dropped, "--check", some}, verdict.ExitPass,
			"1 packet was dropped for reason tail"},
		"as time was": {[]string{marked, "--check", `marks: {count: ">= 1"}`}, verdict.ExitPass,
			"note: marks rest on time"},
		"two of them": {[]string{dropped, "--check", some, "--check", none}, verdict.ExitFail,
			"FAIL"},
		"only what is named": {[]string{dropped, "--check", some}, verdict.ExitPass, "PASS"},
		"beside the MTU": {[]string{dropped, "--check", some, "--mtu", "1500"}, verdict.ExitFail,
			"over the MTU of 1500"},
		"and fidelity": {[]string{dropped, "--check", some, "--fidelity", "degraded"},
			verdict.ExitInconclusive, "asked rates are not known"},
		"no such check": {[]string{whole, "--check", "drop: {}"}, verdict.ExitUsage,
			`did you mean "drops"?`},
		"a key that is needed": {[]string{whole, "--check", "drops: {at: leaf1}"}, verdict.ExitUsage,
			`add count: `},
		"a wrong bound": {[]string{whole, "--check", `drops: {count: "1"}`}, verdict.ExitUsage,
			"want >=, >, <=, < or =="},
		"two in one": {[]string{whole, "--check", "{deadlock: none, lossless: {}}"},
			verdict.ExitUsage, "exactly one"},
		"nothing": {[]string{whole, "--check", ""}, verdict.ExitUsage,
			"want one of bytes-per-rank"},
		"no reason of drops": {[]string{dropped, "--check", `drops: {reason: overflow, count: "== 0"}`},
			verdict.ExitUsage, `--check:1:17: packets.drops.reason "overflow" does not exist; want one of tail, buffer`},
		"no such tap": {[]string{whole, "--check", `pauses: {at: nosuch, count: "== 0"}`},
			verdict.ExitUsage, `--check:1:14: "nosuch" is no tap of the capture; want one of leaf1:p0`},
		"the second's tap": {[]string{whole, "--check", "deadlock: none", "--check",
			`pauses: {at: "leaf2:*", count: "== 0"}`}, verdict.ExitUsage,
			`--check 2:1:14: "leaf2:*" is no tap of the capture; want one of leaf1:p0`},
		"a tap of the capture": {[]string{whole, "--check", `drops: {at: "leaf?:p*", count: "== 0"}`},
			verdict.ExitInconclusive, "drops leaf?:p*"},
		"no tap of the plan": {[]string{whole, "--testbed-file", file, "--check",
			`pauses: {at: nosuch, count: "== 0"}`}, verdict.ExitUsage,
			`--check:1:14: "nosuch" is no tap; want "all", "nics", "switches", node:port, a node or a switch; the switches are leaf1`},
		"no node of the plan": {[]string{whole, "--testbed-file", file, "--check",
			`lossless: {from: "h*", to: h9}`}, verdict.ExitUsage,
			`--check:1:28: "h9" is no node; did you mean "h0"?`},
		"no switch": {[]string{whole, "--testbed-file", file, "--check", `conservation: "spine*"`},
			verdict.ExitUsage, `--check:1:15: "spine*" is no switch; want the name of a switch or a pattern`},
		"no such workload": {[]string{whole, "--workload", workload, "--check", "rank-nic: ra"},
			verdict.ExitUsage, `--check:1:11: workload "ra" does not exist; want ar`},
		"no workload": {[]string{whole, "--check", "rank-nic: ar"}, verdict.ExitUsage,
			"give --workload"},
	} {
		code, stdout, stderr := railbed("", append([]string{"verify"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", name, code, c.code, c.says, stdout, stderr)
		}
	}
}
