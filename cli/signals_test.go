package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/scenarios/runner/suite"
	"railbed/testkit/hosttest"
)

// TestReaderOfARunEnds: a run whose output has no reader any more, as in "railbed run | head -1", comes to
// its end.
func TestReaderOfARunEnds(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path, _ := scenario(t, "steps:\n  - exec: {name: a, nodes: [h0], command: [sleep, '0.1']}\n"+
		"  - exec: {name: b, nodes: [h0], command: ['false']}\n")
	for _, name := range []string{"run", "test"} {
		args := []string{name, path, "--out", t.TempDir()}
		cmd := command(args...)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		cmd.Stdout, cmd.Stderr = writer, writer
		err = cmd.Run()
		writer.Close()
		if code := cmd.ProcessState.ExitCode(); code != verdict.ExitFail {
			t.Errorf("%s: %v, want exit code 1", args[0], err)
		}
		if args[0] == "run" {
			if r := readVerdict(t, args[3]); r.Verdict != verdict.Fail || r.Finished.IsZero() {
				t.Errorf("%s, want FAIL and complete", r.Verdict)
			}
		} else if results, err := suite.Read(args[3]); err != nil || results.Verdict != verdict.Fail {
			t.Errorf("%+v, %v; want FAIL", results, err)
		}
	}
}

// TestSuiteSurvivesItsTerminal: the results of a suite are written after SIGHUP.
func TestSuiteSurvivesItsTerminal(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	path, name := scenario(t,
		"steps:\n  - exec: {name: wait, nodes: [h0], command: [sleep, '600'], timeout: 600s}\n")
	out := t.TempDir()
	cmd := command("test", path, "--out", out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for deadline := time.Now().Add(30 * time.Second); supervisorOf(name) == 0; {
		time.Sleep(10 * time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatal("the run did not begin")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	results, err := suite.Read(out)
	if code := cmd.ProcessState.ExitCode(); code != verdict.ExitFail || err != nil ||
		results.Verdict != verdict.Aborted {
		t.Errorf("exit code %d, %+v, %v; want ABORTED", code, results, err)
	}
	noTrace(t, name)
}

// TestDownOfAStoppedSupervisor: down kills a supervisor that a signal has stopped, and removes the rest.
func TestDownOfAStoppedSupervisor(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-stopped"
	must(t, "up", writeFile(t, twoHosts(name)))
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisorOf(name), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := railbedCommand(t, "down", name)
	if code != 0 || dir.Running() || !strings.Contains(stderr, "is stopped by a signal: killed it") ||
		!strings.Contains(stdout, name+": down in") {
		t.Errorf("code %d, running %v: %s%s", code, dir.Running(), stdout, stderr)
	}
	noTrace(t, name)
	for _, one := range kept0(t, name) {
		os.RemoveAll(one.Dir)
	}
}

// TestRunThatIsTakenDown: the report of a run names the command that took its testbed down, or the signal.
func TestRunThatIsTakenDown(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for want, end := range map[string]func(name string){
		" down ": func(name string) { must(t, "down", name) },
		"its supervisor was signalled to end: terminated": func(name string) {
			if err := syscall.Kill(supervisorOf(name), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		},
	} {
		out := filepath.Join(t.TempDir(), "out")
		cmd, dir := startedRun(t, out)
		end(dir.Name)
		cmd.Wait()
		r := readVerdict(t, out)
		if r.Verdict != verdict.Aborted || !strings.Contains(r.Reason, want) || r.Finished.IsZero() ||
			!strings.Contains(r.Reason, "the testbed ended during the run") {
			t.Errorf("%s: %q, want %q", r.Verdict, r.Reason, want)
		}
		for _, step := range r.Steps {
			if strings.Contains(step.Error, "hangup") {
				t.Errorf("%+v", step)
			}
		}
	}
}

// TestRunUnderATakenName: the error of run names the remedies that the error of up names.
func TestRunUnderATakenName(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-taken"
	file := writeFile(t, twoHosts(name)+"steps:\n  - sleep: 1ms\n")
	must(t, "up", file)
	defer must(t, "down", name)
	_, stderr, code := railbedCommand(t, "run", file, "--out", filepath.Join(t.TempDir(), "out"))
	if code != verdict.ExitUsage || !strings.Contains(stderr, "railbed down "+name) ||
		!strings.Contains(stderr, "--name") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
