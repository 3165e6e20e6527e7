package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/scenarios/runner/suite"
	"railbed/testkit/hosttest"
)

// writeScenarios writes files into a new directory, which becomes the working directory.
func writeScenarios(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const lossyPing = `name: NAME
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {loss: "${loss}"}}
variables: {loss: 20%}
control: [{loss: 0%}]
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {name: ping, nodes: [h0], command: [sh, -c, "ping -4 -q -i 0.01 -c 60 h1; true"]}
checks:
`

// TestControlOfAScenario: a check of the lost packets proves the loss. A check of their arrival does not.
func TestControlOfAScenario(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	writeScenarios(t, map[string]string{
		"proves.yaml": strings.Replace(lossyPing, "NAME", "control-proves", 1) +
			"  - packets: {drops: {reason: loss, count: '>= 1'}}\n",
		"blind.yaml": strings.Replace(lossyPing, "NAME", "control-blind", 1) +
			"  - packets: {rule: {count: icmp, is: '>= 1', at: h1}}\n",
		"other.yaml": "name: control-other\nfabric: {topology: single-switch, params: {hosts: 2}}\n",
	})
	if listed := must(t, "test", "--control", "--list").stdout; listed != "blind/loss=0%\nproves/loss=0%\n" {
		t.Errorf("the scenarios are\n%s", listed)
	}
	got := do(t, "test", "--control")
	for _, want := range []string{"FAIL         blind/loss=0%",
		"it passes with loss=0%, so its checks do not prove",
		"PASS         proves/loss=0%", "FAIL: 1 PASS, 1 FAIL in "} {
		if got.code != verdict.ExitFail || !strings.Contains(got.stdout, want) {
			t.Errorf("code %d: no %q in\n%s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	for args, want := range map[string]string{"--control other.yaml": "no scenario has a claim or the key " +
		"control",
		"--control --quick": "without --quick"} {
		got := do(t, append([]string{"test"}, strings.Fields(args)...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: code %d, %q, want %q", args, got.code, got.stderr, want)
		}
	}
}

// TestClaimOfARun: a claim about two workloads of one run holds, and does not without its treatment.
func TestClaimOfARun(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	writeScenarios(t, map[string]string{"claim.yaml": `name: claim-sizes
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 20mbit}}
nodes: {default: {ranks: 1}}
matrix: {repeat: 5}
claim:
  system: small messages
  source: this test
  published: an eighth of the time
  holds: less than a half
  baseline: {workload: large}
  treatment: {workload: small}
steps:
  - workload: {name: large, kind: all-reduce, transport: rd, size: 256KiB, iterations: 2}
  - workload: {name: small, kind: all-reduce, transport: rd, size: 32KiB, iterations: 2}
compare:
  - {metric: time, ratio: "<= 50%", baseline: ">= 20ms"}
`})
	results := func(args ...string) (r suite.Results, m *suite.Matrix) {
		t.Helper()
		got := do(t, append(args, "-o", "json")...)
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Fatalf("code %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
		skipIfBusy(t, &r)
		return r, &r.Matrices[0]
	}
	r, m := results("test")
	if c := m.Compare[0]; r.Verdict != verdict.Pass && c.Pairs == 5 || c.Of != "small" ||
		c.BesideOf != "large" ||
		!c.Claimed || m.Claim == nil {
		t.Errorf("%s: %+v", r.Verdict, c)
	}
	r, m = results("test", "--control", "--out", "control")
	if m.Control == nil || m.Compare[0].Pairs == 5 && r.Verdict != verdict.Pass {
		t.Errorf("%s: %+v", r.Verdict, m.Control)
	}
	quick := do(t, "test", "--quick", "--out", "quick")
	for _, want := range []string{"claim: small messages, from this test\npublished: an eighth of the time\n",
		"time of the treatment small beside the baseline large: "} {
		if !strings.Contains(quick.stdout, want) {
			t.Errorf("code %d: no %q in\n%s%s", quick.code, want, quick.stdout, quick.stderr)
		}
	}
}

// TestClaimsOfTheLibrary runs the sampled claims of the library with two seeds. None goes in the other
// direction.
func TestClaimsOfTheLibrary(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	files, err := filepath.Glob("../scenarios/claims/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d claims, %v", len(files), err)
	}
	for i, file := range files {
		if !hosttest.Sampled(t, i) {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			if strings.HasSuffix(file, "ecn-sharp.yaml") {
				hosttest.Need(t, hosttest.IPerf3)
			}
			path, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			var r suite.Results
			got := do(t, "test", path, "--quick", "-o", "json")
			if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
				t.Fatalf("code %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
			}
			skipIfBusy(t, &r)
			for _, c := range r.Matrices[0].Compare {
				if !c.Claimed || c.Verdict != verdict.Pass && c.Verdict != verdict.Inconclusive {
					t.Errorf("%s: %s", c.Verdict, c.Reason)
				}
			}
		})
	}
}
