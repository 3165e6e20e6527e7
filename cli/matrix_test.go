package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/scenarios/runner/suite"
	"railbed/testkit/hosttest"
)

// lossMatrix is the library's scenario with a matrix: 3 transports and 2 losses.
func lossMatrix(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../scenarios/matrix/loss.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// skipIfBusy skips a test that needs runs in which the emulator kept up.
func skipIfBusy(t *testing.T, r *suite.Results) {
	t.Helper()
	for i := range r.Cases {
		for _, one := range r.Cases[i].Runs {
			if one.Fidelity == report.Overloaded ||
				one.Verdict == verdict.Inconclusive && one.Fidelity == report.Degraded {
				t.Skipf("the machine is too busy: a run of %s was %s", r.Cases[i].Name, one.Fidelity)
			}
		}
	}
}

// TestMatrix runs the library's matrix, and a second time without a new run.
func TestMatrix(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	file := lossMatrix(t)
	t.Chdir(t.TempDir())
	again := []string{"test", file, "--repeat", "1", "--out", "results", "-o", "json"}
	read := func(got outcome) (r suite.Results) {
		t.Helper()
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Fatalf("code %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
		}
		skipIfBusy(t, &r)
		if got.code != r.Verdict.ExitCode() {
			t.Errorf("code %d, verdict %s", got.code, r.Verdict)
		}
		return r
	}
	first := read(do(t, again...))
	if first.Verdict != verdict.Pass || len(first.Cases) != 6 || len(first.Matrices) != 1 {
		t.Fatalf("%+v", first)
	}
	m := first.Matrices[0]
	packets := slices.IndexFunc(m.Numbers,
		func(n suite.Number) bool { return n.Of == "all" && n.What == "packets" })
	if len(m.Cells) != 6 || packets < 0 || len(m.Compare) != 2 || m.Compare[0].Median == nil ||
		m.Numbers[packets].Cells[3].Median != *m.Compare[0].Median {
		t.Errorf("%+v", m.Compare)
	}
	for _, file := range []string{m.Name + "/matrix.html", m.Name + "/matrix.csv",
		m.Cells[5].Case + "/run-1/report.json"} {
		if _, err := os.Stat(filepath.Join("results", file)); err != nil {
			t.Error(err)
		}
	}
	second := read(do(t, append(again, "--resume")...))
	for i, o := range second.Cases {
		if !o.Runs[0].Earlier || len(o.Runs) != len(first.Cases[i].Runs) {
			t.Errorf("%s has new runs: %+v", o.Name, o.Runs)
		}
	}
	if listed := must(t, "test", file, "--filter", "transport=rd,loss=2%", "--list", "--out",
		"results").stdout; !strings.HasPrefix(listed, m.Cells[3].Case+" ") || strings.Count(listed,
		"\n") != 1 ||
		!strings.HasSuffix(listed, "s\n") {
		t.Errorf("the list is %q", listed)
	}
}

// TestRunOfCell runs a cell with another seed and dilation, by the command that the report of a suite has.
func TestRunOfCell(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	file := lossMatrix(t)
	t.Chdir(t.TempDir())
	do(t, "run", file, "--set", "transport=tcp", "--set", "loss=2%", "--set", "size=16KiB", "--seed", "5",
		"--dilation", "2", "--out", "one")
	in, err := os.Open("one/report.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := report.Read(in)
	if err != nil {
		t.Fatal(err)
	}
	want := "railbed run " + file + " --set transport=tcp --set loss=2% --set size=16KiB --seed 5 " +
		"--dilation 2 --out one"
	if got := strings.Join(r.Repeat, " "); got != want || r.Seed != 5 || r.Dilation != 2 ||
		len(r.Workloads) != 1 || r.Workloads[0].Transport != "tcp" {
		t.Errorf("seed %d, dilation %d, %+v, repeat\n%s, want\n%s", r.Seed, r.Dilation, r.Workloads, got,
			want)
	}
}

// TestSettings has commands on a file with a matrix, and what they print.
func TestSettings(t *testing.T) {
	file := lossMatrix(t)
	wrong := writeFile(t, "name: a\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n"+
		"  links: {default: {loss: \"${loss}\"}}\n"+
		"matrix: {loss: [0, 1%, much]}\nsteps:\n  - link: {where: \"h0--leaf1\", set: {loss: \"${loss}\"}}\n")
	plain := writeFile(t, twoHosts("cli-settings"))
	cell := []string{"--set", "transport=rd", "--set", "loss=0"}
	for _, test := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"validate", file}, 0, "ok, 4 nodes, 1 switch, 4 links, 6 cells with 2 runs each", ""},
		{[]string{"validate", file, "--set", "loss=0"}, 0, "3 cells with 2 runs each", ""},
		{[]string{"validate", file, "--set", "size=many"}, 2, "", `size "many" cannot be read`},
		{[]string{"validate", wrong}, 2, "", `:5:27: cell loss=much: ratio "much" cannot be read`},
		{[]string{"validate", wrong, "--set", "loss=0"}, 0, "1 cell", ""},
		{[]string{"validate", plain, "--set", "loss=0"}, 2, "", "want a file with variables or a matrix"},
		{[]string{"run", file}, 2, "", "matrix of 6 cells, and one testbed is wanted; choose a cell, as in " +
			"--set transport=tcp --set loss=0"},
		{[]string{"run", file, "--set", "loss=3%"}, 2, "", "has no cell with loss=3%: want 0 or 2%"},
		{[]string{"run", file, "--set", "los=0"}, 2, "", `no variable "los"; did you mean "loss"?`},
		{[]string{"run", file, "--set", "loss"}, 2, "", `--set "loss": want NAME=VALUE`},
		{[]string{"run", plain, "--seed", "0"}, 2, "", "--seed 0: want at least 1"},
		{[]string{"run", plain, "--dilation", "0"}, 2, "", "--dilation 0: want 1 to 1000"},
		{[]string{"run", plain, "--dilation", "1001"}, 2, "", "--dilation 1001: want 1 to 1000"},
		{append([]string{"plan", file}, cell...), 0, "matrix-loss", ""},
		{append([]string{"graph", file, "-f", "dot"}, cell...), 0, "leaf1", ""},
		{[]string{"plan", file, "--set", "loss=0"}, 2, "", "matrix of 3 cells"},
		{[]string{"test", file, "--list", "--set", "loss=0"}, 0, "transport=tcp,loss=0\n", ""},
		{[]string{"test", file, plain, "--list", "--set", "loss=0"}, 0, "transport=tcp,loss=0\n", ""},
		{[]string{"test", file, "--list", "--set", "los=0"}, 2, "",
			"--set los: no file has this variable or axis"},
		{[]string{"test", file, "--list", "--shard", "2/3"}, 0, "transport=tcp,loss=2%\n", ""},
	} {
		got := do(t, test.args...)
		if got.code != test.code || !strings.Contains(got.stdout, test.stdout) ||
			!strings.Contains(got.stderr, test.stderr) {
			t.Errorf("%q: code %d, %q, %q; want %d, %q, %q", test.args, got.code, got.stdout, got.stderr,
				test.code,
				test.stdout, test.stderr)
		}
	}
}
