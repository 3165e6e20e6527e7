package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/reporting"
	"railbed/reporting/compare"
	"railbed/testkit/hosttest"
)

// results writes the results of runs of one workload with these times, in microseconds, and returns their
// directories.
func results(t *testing.T, name string, times ...float64) (dirs []string) {
	t.Helper()
	for i, us := range times {
		r := &report.Report{Format: report.Format, Verdict: verdict.Pass, File: name + ".yaml",
			Started:   time.Date(2026, 3, 14, 15, 9, i, 0, time.UTC),
			Host:      report.Host{Name: name},
			Workloads: []report.Workload{{Name: "ar", Time: us, BusBW: 1}},
			Checks:    []report.Check{{Name: "workload ar", Verdict: verdict.Pass}}}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprintf("%s%d", name, i+1))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, report.JSONFile), text, 0o644); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// TestReportCompares: two runs have values alone, sets have tests.
func TestReportCompares(t *testing.T) {
	old, new := results(t, "old", 100, 101, 102, 103), results(t, "new", 50, 51, 52, 53)
	code, out, errs := railbed("", "report", old[0], new[0])
	if code != 0 || errs != "" {
		t.Fatalf("code %d, %s", code, errs)
	}
	for _, want := range []string{
		"no difference can be significant: need >= 4 samples to detect a difference at alpha level 0.05, " +
			"and each run is a sample (base has 1, new has 1)",
		"base old1 has no plan.json: its plan is not compared",
		"\nfile               old.yaml  new.yaml  differs\n",
		"\ncheck workload ar  PASS  PASS\n", "time  less    100us  50us  -50us (-50.0%)",
		"workloads: equal in all runs: 3 more",
		"\nplans are not compared; verdict PASS; too few runs to test numbers\n",
	} {
		if !strings.Contains(strings.ReplaceAll(out, filepath.Dir(old[0])+"/", ""), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "p=") || strings.Contains(out, "plan: no change") {
		t.Errorf("a test or a plan of runs without:\n%s", out)
	}
	args := append(append([]string{"report"}, old...), append([]string{"--"}, new...)...)
	_, out, _ = railbed("", args...)
	for _, want := range []string{"time  less    102us ± ∞  52us ± ∞  -50us (-49.3%) better  p=0.029 n=4",
		"1 of 1 test found a difference (p <= 0.05)",
		"\nplans are not compared; verdict PASS; of 1 tested numbers 1 is better, 0 worse, 0 differ, 0 " +
			"perhaps\n",
		"± ∞: need >= 6 samples"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	code, out, errs = railbed("", append([]string{"report", "--alpha", "0.01"}, args[1:]...)...)
	if code != 0 || !strings.Contains(out, "need >= 5 samples") || !strings.Contains(out, "  ~  ") {
		t.Errorf("code %d, %s, a strict test:\n%s", code, errs, out)
	}
}

// TestReportRefuses: bad input is a usage error, and writes no page.
func TestReportRefuses(t *testing.T) {
	runs := results(t, "run", 1, 2, 3)
	page := filepath.Join(t.TempDir(), "page.html")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--html", page}, "0 arguments; usage: railbed report RUN | BASE NEW | BASE... -- NEW..."},
		{append([]string{"--html", page}, runs...),
			"3 runs: want -- between base runs and new runs, as in: railbed report "},
		{[]string{"--html", page, runs[0], runs[1], "--"}, "no run follows --: want base runs before it"},
		{[]string{runs[0], "--", runs[1], "--html", page}, "--html follows --: want runs there, and flags"},
		{[]string{"--html", page, runs[0], filepath.Dir(runs[0])},
			"has no report.json: want a directory of results of railbed run"},
		{[]string{"--html", page, runs[0], runs[0]}, "is the same run as"},
		{[]string{"--html", page, "--alpha", "5", runs[0], runs[1]},
			"--alpha 5: want a number between 0 and 1"},
		{[]string{"--html", page, "--alpha", "NaN", runs[0], runs[1]},
			"--alpha NaN: want a number between 0 and 1"},
		{[]string{"--no-recordings", runs[0]}, "--no-recordings: want two runs to compare"},
		{[]string{"--html", page, runs[0]}, "--html: want two runs to compare"},
		{[]string{"--html", filepath.Dir(page), runs[0], runs[1]}, "is a directory, want a regular file"},
	} {
		code, _, errs := railbed("", append([]string{"report"}, c.args...)...)
		if code != verdict.ExitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: code %d, %q, want %q", c.args, code, errs, c.want)
		}
		if _, err := os.Stat(page); err == nil {
			t.Fatalf("%q wrote a page", c.args)
		}
	}
}

// TestReportOfRuns compares real runs. Two links with 20 ms more each delay every datagram by 40 ms more, on
// a slow machine, too. Two runs of one file are not called different.
func TestReportOfRuns(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	file := fmt.Sprintf(`name: cli-compare-%d
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, delay: 10us}}
steps:
  - capture: {at: [nics], file: run.pcapng}
  - traffic: {name: load, from: [h0], to: [h1], rate: 2mbit, size: 1000B, for: 300ms}
  - sleep: 100ms
checks:
  - packets: {conservation: "*"}
`, os.Getpid())
	dir := t.TempDir()
	for name, text := range map[string]string{"first": file, "again": file,
		"slow": strings.Replace(file, "delay: 10us", "delay: 20ms", 1)} {
		if got := do(t, "run", writeFile(t, text), "--out", filepath.Join(dir,
			name)); got.code == verdict.ExitUsage {
			t.Fatalf("run: %s", got.stderr)
		}
	}
	t.Chdir(dir)
	compared := func(base, changed string) (c compare.Comparison) {
		got := must(t, "report", base, changed, "-o", "json", "--html", "page.html")
		if err := json.Unmarshal([]byte(got.stdout), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := compared("first", "slow")
	if len(c.Plan) != 1 || !strings.Contains(c.Plan[0], "delay 10us, now 20ms") {
		t.Errorf("changes of the plan: %q", c.Plan)
	}
	found := false
	for _, n := range c.Numbers {
		if n.Section == reporting.RecordingSection && n.What == "p50" && n.Difference != nil {
			if found = true; *n.Difference < 0.035 || *n.Difference > 0.2 || n.Outcome != compare.TooFew {
				t.Errorf("the median time of messages: %+v, want 40 ms more", n)
			}
		}
	}
	page, err := os.ReadFile("page.html")
	lines := strings.Count(string(page), `<g class="hue0"><path d="`)
	lines += strings.Count(string(page), `<g class="hue1"><path d="`)
	if !found || err != nil || lines != 2 {
		t.Errorf("found %v; %d lines in a page of %d bytes, %v", found, lines, len(page), err)
	}
	c = compared("first", "again")
	if len(c.Plan) != 0 || !c.PlanCompared || c.Significant != 0 {
		t.Errorf("two runs of a file: plan %q, %d differences", c.Plan, c.Significant)
	}
	for _, f := range c.Facts {
		if f.What != "file" { // in another directory
			t.Errorf("two runs of a file: %+v", f)
		}
	}
}
