package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"railbed/internal/verdict"
	"railbed/scenarios/runner/suite"
	"railbed/testkit/hosttest"
)

// smallReduce is a file of two hosts with a small all-reduce over links of a rate.
func smallReduce(name, rate, check string) string {
	return "name: " + name + `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: ` + rate + `}}
nodes: {default: {ranks: 1}}
steps:
  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: tcp, size: 64KiB, iterations: 3}
checks:
  - workload: {name: ar, ` + check + `}
`
}

// TestSuite runs a folder with scenarios that pass, that fail and that have a mistake, side by side.
func TestSuite(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one.yaml":       smallReduce("suite-same", "100mbit", "correct: true"),
		"below/two.yaml": smallReduce("suite-same", "100mbit", "correct: true"),
		// Nothing in this file depends on time, so a busy host does not excuse what fails.
		"below/fails.yaml": "name: suite-fails\nfabric: {topology: single-switch, params: {hosts: 2}}\n" +
			"steps:\n  - exec: {nodes: [h0], command: [\"false\"]}\n",
		"below/wrong.yaml": smallReduce("suite-wrong", "100mbit", "corect: true"),
		"below/notes.yaml": "people: [ann]\n",
		".hidden/x.yaml":   smallReduce("suite-hidden", "100mbit", "correct: true"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if listed := must(t, "test", "--list").stdout; listed != "below/fails\nbelow/two\nbelow/wrong\none\n" {
		t.Errorf("the scenarios are\n%s", listed)
	}
	got := do(t, "test", "-j", "2", "--out", "results")
	if got.code != verdict.ExitFail {
		t.Fatalf("code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if !strings.Contains(got.stderr, "passed over below/notes.yaml: it has no key fabric\n") {
		t.Errorf("not said which file is passed over: %s", got.stderr)
	}
	for _, want := range []string{"FAIL         below/fails", "PASS         below/two",
		"FAIL         below/wrong", `unknown key "corect"`, "PASS         one", "FAIL: 2 PASS, 2 FAIL, 1 file passed over in "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	r, err := suite.Read("results")
	if err != nil || len(r.Cases) != 4 || len(r.Cases[0].Runs) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, file := range []string{"junit.xml", "index.html", "below/fails/run-2/report.html",
		"one/run-1/report.json"} {
		if _, err := os.Stat(filepath.Join("results", file)); err != nil {
			t.Error(err)
		}
	}
	if again := do(t, "test", "-j", "2", "--out", "results"); again.code != verdict.ExitFail ||
		!strings.Contains(again.stdout, "FAIL: 2 PASS, 2 FAIL, ") {
		t.Errorf("a second time: code %d: %s%s", again.code, again.stdout, again.stderr)
	}
	var shards []string
	for _, shard := range []string{"1/3", "2/3", "3/3"} {
		shards = append(shards, must(t, "test", "--list", "--shard", shard).stdout)
	}
	if all := strings.Join(shards, ""); strings.Count(all, "\n") != 4 || shards[0] != "below/fails\none\n" {
		t.Errorf("the shards are %q", shards)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{[]string{"--shard", "4/3"}, "such as 1/4"},
		{[]string{"--filter", "absent"}, "no scenarios"},
		{[]string{"absent.yaml"}, "absent.yaml cannot be read: no such file or directory; name a file or a " +
			"directory"},
		{[]string{"-j", "0"}, "at least 1"},
		{[]string{"--baseline", "results"}, "go together"},
		{[]string{"--baseline", "below", "--metric", "busbw"}, "railbed test wrote"},
		{[]string{"--baseline", "results", "--metric", "busbw", "--out", "results"}, "one directory"},
		{[]string{"one.yaml", "--out", "below"}, "was not made by railbed test"},
	} {
		got := do(t, append([]string{"test"}, wrong.args...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, wrong.want) {
			t.Errorf("%v: code %d, %q, want %q", wrong.args, got.code, got.stderr, wrong.want)
		}
	}
}

// TestSuiteFindsRegressions compares runs over links of 2 Mbit/s with runs over 100 Mbit/s. An all-reduce
// takes 260 ms and 5 ms there, so a busy host does not change which is faster.
func TestSuiteFindsRegressions(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	t.Chdir(t.TempDir())
	write := func(rate string) {
		t.Helper()
		text := smallReduce("suite-rate", rate, "correct: true")
		if err := os.WriteFile("a.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("100mbit")
	must(t, "test", "a.yaml", "--repeat", "4", "--out", "old")
	write("2mbit")
	again := []string{"test", "a.yaml", "--metric", "busbw", "--repeat", "4"}
	got := do(t, append(again[:6:6], "--out", "new", "--baseline", "old")...)
	for _, made := range []string{"old", "new"} { // overloaded runs have no numbers that count
		if results, err := suite.Read(made); err == nil {
			skipIfBusy(t, results)
		}
	}
	if got.code != verdict.ExitFail || !strings.Contains(got.stdout, "worse: a: ar busbw: ") {
		t.Errorf("code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	junit, err := os.ReadFile(filepath.Join("new", suite.JUnitFile))
	if err != nil || !strings.Contains(string(junit), `classname="railbed.baseline" name="a: ar busbw"`) {
		t.Errorf("%v: no failure in\n%s", err, junit)
	}
	// Runs of the same file would be called worse by chance, in one of 70 comparisons.
	write("100mbit")
	var r suite.Results
	better := must(t, append(again[:6:6], "--out", "better", "--baseline", "new", "-o", "json")...)
	if err := json.Unmarshal([]byte(better.stdout), &r); err != nil || r.Verdict != verdict.Pass {
		t.Errorf("%v: %s", err, better.stdout)
	}
	for args, want := range map[string]string{
		"busbw --repeat 1": "a: 1 and, in new, 4 runs are too few for a significant result; want --repeat 4",
		"absent --repeat 4": "not compared: no scenario has a number absent both here and in new; " +
			`want the beginning of one of ["time" "algbw" "busbw" `} {
		metric, repeat, _ := strings.Cut(args, " --repeat ")
		got := do(t, "test", "a.yaml", "--repeat", repeat, "--out", "few", "--baseline", "new", "--metric",
			metric)
		if got.code == 0 || !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%s: code %d, %q, want %q", args, got.code, got.stdout+got.stderr, want)
		}
	}
}

// TestScenarioFiles: what a file is follows from its content, and each file that is passed over is named with
// the reason.
func TestScenarioFiles(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	scenarios := filepath.Join(dir, "scenarios")
	const fabric = "fabric: {topology: single-switch, params: {hosts: 2}}\n"
	for name, text := range map[string]string{
		"plain.yaml":           fabric,
		"quoted.yaml":          "\"fabric\": {topology: single-switch, params: {hosts: 2}}\n",
		"explicit.YML":         "? fabric\n: {topology: single-switch, params: {hosts: 2}}\n",
		"flow.yaml":            "{name: flow, fabric: {topology: single-switch, params: {hosts: 2}}}\n",
		"json.json":            `{"fabric": {"topology": "single-switch", "params": {"hosts": 2}}}`,
		"bom.yaml":             "\ufeff" + fabric,
		"upper.yaml":           "Fabric: {topology: single-switch}\n",
		"plural.yaml":          "name: plural\nfabrics: {topology: single-switch}\n",
		"broken.yaml":          fabric + "steps: [\n",
		"notes.yaml":           "people: [ann]\n",
		"text.yaml":            "a text that says\n  fabric: in its second line, which is no key\n",
		"nested.yaml":          "lab:\n  fabric: {topology: single-switch}\n",
		"list.json":            "[1, 2]",
		"template.yaml":        "{{ if .Values }}\na: b\n{{ end }}\n",
		"testdata/inner.yaml":  fabric,
		"out/.railbed-results": "x",
		"out/plan.json":        `{"fabric": {}}`,
		".git/config.yaml":     fabric,
	} {
		path := filepath.Join(scenarios, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(other, 0o755), os.Symlink(other, filepath.Join(scenarios, "linked")),
		os.WriteFile(filepath.Join(other, "x.yaml"), []byte(fabric), 0o644),
		os.Symlink("nothing", filepath.Join(scenarios, "gone.yaml")),
		syscall.Mkfifo(filepath.Join(scenarios, "fifo.yaml"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	code, out, errs := railbed("", "test", "--list", "scenarios")
	var want []string
	for _, name := range []string{"bom", "broken", "explicit", "flow", "json", "plain", "plural", "quoted",
		"upper"} {
		want = append(want, "scenarios/"+name)
	}
	if got := strings.Fields(out); code != 0 || !slices.Equal(got, want) {
		t.Errorf("code %d, scenarios %q, want %q", code, got, want)
	}
	for name, reason := range map[string]string{"notes.yaml": "it has no key fabric",
		"text.yaml":   "line 2: a second",
		"nested.yaml": "it has no key fabric", "list.json": "mapping", "template.yaml": "line 2: ",
		"testdata": "name the folder itself", "linked": "a link to a folder", "gone.yaml": "leads nowhere",
		"fifo.yaml": "no regular file", "out": "results of railbed run"} {
		line := ""
		for l := range strings.Lines(errs) {
			if strings.HasPrefix(l, "passed over scenarios/"+name+": ") {
				line = l
			}
		}
		if !strings.Contains(line, reason) {
			t.Errorf("%s: %q, want %q", name, line, reason)
		}
	}
	if n := strings.Count(errs, "\n"); n != 10 {
		t.Errorf("%d lines, want 10:\n%s", n, errs)
	}
}

// TestSuiteRefusesAnotherUsersDirectory: test refuses the directories that run refuses, and writes through no
// link below its directory.
func TestSuiteRefusesAnotherUsersDirectory(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	const attacker = 61002
	above := filepath.Join(t.TempDir(), "above")
	shared, linked, outside := filepath.Join(above, "out"), t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(above, 0o700), os.Chmod(above, 0o777|os.ModeSticky),
		os.Mkdir(shared, 0o755), os.Chown(shared, attacker, attacker),
		os.Symlink(outside, filepath.Join(linked, "a")), os.Chown(linked, attacker, attacker)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a.yaml", []byte(smallReduce("suite-links", "100mbit", "correct: true")),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := do(t, "test", "a.yaml", "--out", shared); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "belongs to user 61002") {
		t.Errorf("another user's directory: code %d: %s", got.code, got.stderr)
	}
	// The results file makes the directory one of an earlier suite.
	if err := os.WriteFile(filepath.Join(linked, suite.ResultsFile), []byte(`{"format": "`+suite.Format+`"}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := do(t, "test", "a.yaml", "--out", linked); got.code != verdict.ExitFail ||
		!strings.Contains(got.stdout, "path escapes from parent") {
		t.Errorf("a planted link: code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for _, dir := range []string{shared, outside} {
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("%s has %v, %v", dir, names, err)
		}
	}
}
