package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railbed/capture/report"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/reporting"
	"railbed/testbed/doctor"
	"railbed/testkit/hosttest"
)

const pair = "fabric:\n  topology: single-switch\n  params: {hosts: 2}\n  links: {default: {rate: 100mbit}}\n"

// scenario writes a file whose testbed has a name of this process's own.
func scenario(t *testing.T, text string) (path, name string) {
	t.Helper()
	name = fmt.Sprintf("cli-run-%d", os.Getpid())
	path = filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(path, []byte("name: "+name+"\n"+pair+text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, name
}

// railbedCommand is do with its results apart.
func railbedCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	got := do(t, args...)
	return got.stdout, got.stderr, got.code
}

func TestRunExitCodes(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	cases := []struct {
		name, text string
		code       int
		says       string // at the begin of stdout, or in stderr for code 2
	}{
		{"pass", "steps:\n  - exec: {nodes: [h0], command: ['true']}\n", verdict.ExitPass, "PASS"},
		{"fail", "steps:\n  - exec: {nodes: [h0], command: ['false']}\n", verdict.ExitFail,
			"test.yaml:7:5: step exec false: false in h0: exit code 1"},
		{"bad file", "steps:\n  - exec: {nodes: [h0], comand: ['false']}\n", verdict.ExitUsage, "comand"},
		{"nothing proved", "steps:\n  - capture: {at: [all], file: a.pcapng, filter: 'udp port 1'}\n" +
			"checks:\n  - packets: {conservation: '*'}\n", verdict.ExitInconclusive, "INCONCLUSIVE"},
	}
	if doctor.Has(t.Context(), "netem") != nil {
		cases = append(cases, struct {
			name, text string
			code       int
			says       string
		}{"unsupported", "requires: [netem]\n", verdict.ExitUnsupported, "remedy: "})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path, _ := scenario(t, c.text)
			out := filepath.Join(t.TempDir(), "out")
			stdout, stderr, code := railbedCommand(t, "run", path, "--out", out)
			text, _, _ := strings.Cut(stdout, "\n\n")
			if c.code == verdict.ExitUsage {
				text = stderr
			}
			if code != c.code || !strings.Contains(text, c.says) {
				t.Errorf("exit code %d, want %d and %q in\n%s\n%s", code, c.code, c.says, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, "\x1b") {
				t.Error("escape codes on what is no terminal")
			}
			if c.code == verdict.ExitUsage {
				if _, err := os.Stat(out); err == nil {
					t.Error("results of a file that was refused")
				}
				return
			}
			again, _, code := railbedCommand(t, "report", out)
			if code != c.code || again != stdout {
				t.Errorf("report prints with code %d\n%s\nwant what run printed:\n%s", code, again, stdout)
			}
		})
	}
}

func TestRunPrintsJSON(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path, name := scenario(t, "steps:\n  - sleep: 10ms\n")
	stdout, _, code := railbedCommand(t, "run", path, "--out", filepath.Join(t.TempDir(), "out"), "-o",
		"json", "--name", name+"-b")
	var r report.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Verdict != verdict.Pass || code != 0 ||
		r.Name != name+"-b" {
		t.Errorf("code %d, %v: %s", code, err, stdout)
	}
	if line := reporting.ShellLine(r.Repeat); !strings.HasPrefix(line,
		"railbed run "+path+" --name "+name+"-b --out ") {
		t.Errorf("repeat by %s", line)
	}
}

func TestRunRefusesDirectoriesAndNames(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path, name := scenario(t, "steps:\n  - sleep: 10ms\n")
	if _, stderr, code := railbedCommand(t, "run", path, "--out",
		filepath.Dir(path)); code != verdict.ExitUsage || !strings.Contains(stderr, "--out") {
		t.Errorf("a directory with other files: code %d, %s", code, stderr)
	}
	if _, stderr, code := railbedCommand(t, "report", filepath.Dir(path)); code != verdict.ExitUsage ||
		!strings.Contains(stderr, "no results") {
		t.Errorf("report of no results: code %d, %s", code, stderr)
	}
	if _, stderr, code := railbedCommand(t, "up", path); code != 0 {
		t.Fatalf("up: code %d, %s", code, stderr)
	}
	defer railbedCommand(t, "down", name)
	if _, stderr, code := railbedCommand(t, "run", path, "--out",
		filepath.Join(t.TempDir(), "out")); code != verdict.ExitUsage || !strings.Contains(stderr, name) {
		t.Errorf("a name that is up: code %d, %s", code, stderr)
	}
}

// startedRun starts a run that lasts, and returns when it does its last step.
func startedRun(t *testing.T, out string) (*exec.Cmd, rundir.Dir) {
	t.Helper()
	path, name := scenario(t, "steps:\n  - capture: {at: [all], file: a.pcapng}\n  - exec: {name: wait, "+
		"nodes: [h0], command: [sh, -c, 'echo here; setsid sleep 600 & sleep 600']}\n")
	cmd := command("run", path, "--out", out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the second step of the run", func() bool {
		text, err := os.ReadFile(filepath.Join(out, "logs/h0/wait.out"))
		return err == nil && len(text) > 0
	})
	return cmd, dir
}

func readVerdict(t *testing.T, out string) *report.Report {
	t.Helper()
	file, err := os.Open(filepath.Join(out, report.JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := report.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestInterruptedRunReports: each signal by which a terminal, a shell or a service manager ends programs.
func TestInterruptedRunReports(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for name, signals := range map[string][]os.Signal{
		"SIGINT":  {syscall.SIGINT},
		"SIGTERM": {syscall.SIGTERM, syscall.SIGHUP},
		"SIGHUP":  {syscall.SIGHUP, syscall.SIGHUP, syscall.SIGHUP},
		"SIGQUIT": {syscall.SIGQUIT},
	} {
		t.Run(name, func(t *testing.T) { interruptedRun(t, signals) })
	}
}

func interruptedRun(t *testing.T, signals []os.Signal) {
	out := filepath.Join(t.TempDir(), "out")
	cmd, dir := startedRun(t, out)
	for _, one := range signals {
		if err := cmd.Process.Signal(one); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != verdict.ExitFail || dir.Running() {
		t.Errorf("exit code %d, running %v; want 1 and nothing", code, dir.Running())
	}
	r := readVerdict(t, out)
	if r.Verdict != verdict.Aborted || r.Reason != "interrupted" || r.Finished.IsZero() ||
		!r.Captures[0].Complete {
		t.Errorf("%+v, want ABORTED and complete", r)
	}
	for _, name := range []string{report.JUnitFile, report.HTMLFile, "supervisor.log"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
}

// No process cleans up after SIGKILL. The testbed ends with the process, and the report that was
// written at the start stays true.
func TestKilledRunLeavesATrueReport(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	out := filepath.Join(t.TempDir(), "out")
	cmd, dir := startedRun(t, out)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := dir.WaitGone(hosttest.Bound); err != nil {
		t.Error(err)
	}
	if r := readVerdict(t, out); r.Verdict != verdict.Aborted || !r.Finished.IsZero() {
		t.Errorf("verdict %s, finished %v; want ABORTED and unfinished", r.Verdict, r.Finished)
	} else if began := r.Steps[0]; began.State == report.Skipped {
		t.Errorf("a step that had begun is %s: %+v", began.State, began)
	}
	if stdout, _, code := railbedCommand(t, "report", out); code != verdict.ExitFail ||
		!strings.Contains(stdout, "ABORTED") {
		t.Errorf("report: code %d\n%s", code, stdout)
	}
	// The next run takes the directory over.
	path, _ := scenario(t, "steps:\n  - sleep: 1ms\n")
	if stdout, stderr, code := railbedCommand(t, "run", path, "--out", out); code != 0 {
		t.Errorf("the run after it: code %d\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(out, "logs")); err == nil {
		t.Error("the killed run's logs are still there")
	}
}
