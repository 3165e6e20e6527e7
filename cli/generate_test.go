package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/plan/topology"
	"railbed/testkit/hosttest"
)

// lossyRails are the arguments for a file with each worked example.
var lossyRails = []string{"generate", "rail-optimized", "-p", "servers=4", "-p", "rails=2", "--with",
	"roce,fault,checks"}

// TestGenerateWith: with each set of worked examples the file of each topology is valid, without a warning,
// and has the examples.
func TestGenerateWith(t *testing.T) {
	subjects := map[string]string{"roce": "congestion: dcqcn", "fault": "drop: {share: 5%}, for: 1s",
		"checks": "etransmissions"}
	words := []string{"roce", "fault", "checks"}
	for _, name := range append(topology.Names(), spec.Explicit) {
		for set := range 1 << len(words) {
			var with []string
			for i, word := range words {
				if set&(1<<i) != 0 {
					with = append(with, word)
				}
			}
			list := strings.Join(with, ",")
			code, text, errs := railbed("", "generate", name, "--with="+list)
			if code != 0 {
				t.Fatalf("%s with %q: code %d, %s", name, list, code, errs)
			}
			for word, has := range subjects {
				if strings.Contains(text, has) != strings.Contains(list, word) {
					t.Errorf("%s with %q: want %q only with %s in\n%s", name, list, has, word, text)
				}
			}
			if code, out, errs := railbed(text, "validate", "-"); code != 0 || errs != "" {
				t.Errorf("%s with %q is not valid: %s%s\n%s", name, list, out, errs, text)
			}
			// The command in the third line makes the file again.
			_, made, _ := strings.Cut(text, "# Made by: railbed ")
			made, _, _ = strings.Cut(made, "\n")
			if _, again, _ := railbed("", strings.Fields(made)...); again != text {
				t.Errorf("%q makes\n%s\nand not\n%s", made, again, text)
			}
		}
	}
	// A switch with many ports needs a larger buffer for PFC.
	_, text, _ := railbed("", "generate", "single-switch", "-p", "hosts=200", "--with", "roce")
	if code, out, errs := railbed(text, "validate", "-"); code != 0 {
		t.Errorf("200 hosts with PFC: %s%s", out, errs)
	}
	for word, want := range map[string]string{"fautl": `--with "fautl": did you mean "fault"?`,
		"x": `--with "x": want roce, fault, checks`} {
		code, out, errs := railbed("", "generate", "hpn", "--with", "roce,"+word)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("--with %s: code %d, %q, %q", word, code, out, errs)
		}
	}
	if _, out, _ := railbed("", "__complete", "generate", "hpn", "--with", "fault,"); !strings.Contains(out,
		"fault,checks\t") || strings.Contains(out, "fault,fault") {
		t.Errorf("completion after a comma: %s", out)
	}
}

// TestGeneratedRails: each server has a rank on each rail, and auto keeps to the rails.
func TestGeneratedRails(t *testing.T) {
	for params, want := range map[string]string{
		"servers=4,rails=3":          "ranks: 3 #",
		"servers=4,rails=1":          "ranks: 1 #",
		"servers=1,rails=2":          "ranks: 2 #",
		"servers=2,rails=2,spines=0": "ranks: 2 #",
	} {
		args := []string{"generate", "rail-optimized"}
		for _, p := range strings.Split(params, ",") {
			args = append(args, "-p", p)
		}
		_, text, errs := railbed("", args...)
		local := strings.HasPrefix(params, "servers=4,rails=3")
		several := want != "ranks: 1 #"
		if !strings.Contains(text, want) || strings.Contains(text, "algorithm: auto") != several ||
			strings.Contains(text, "rail-local: ar") != local {
			t.Errorf("%s: want %q: %s%s", params, want, text, errs)
		}
		if code, out, errs := railbed(text, "validate", "-"); code != 0 || errs != "" {
			t.Errorf("%s: %s%s", params, out, errs)
		}
	}
}

// TestGeneratedFileRuns runs the file that a newcomer asks for: four servers, two rails, RoCE with DCQCN,
// a lossy link for one second, and a check of retransmissions.
func TestGeneratedFileRuns(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	_, text, errs := railbed("", lossyRails...)
	dir := t.TempDir()
	file, out := filepath.Join(dir, "lossy.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err, errs)
	}
	got := do(t, "run", file, "--out", out, "--name", fmt.Sprintf("gen-%d", os.Getpid()))
	if got.code != 0 && (got.code != verdict.ExitOverloaded || !strings.Contains(got.stdout, busyHost)) {
		t.Errorf("%+v", got)
	}
	var r report.Report
	written, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err == nil {
		err = json.Unmarshal(written, &r)
	}
	if err != nil || len(r.Workloads) != 1 || r.Workloads[0].Algorithm != "auto (hierarchical)" {
		t.Errorf("%v: the workload ran by %+v", err, r.Workloads)
	}
}
