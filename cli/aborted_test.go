package cli_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railbed/capture/report"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// crash brings a testbed up and kills its supervisor.
func crash(t *testing.T, name string) rundir.Dir {
	t.Helper()
	must(t, "up", writeFile(t, twoHosts(name)))
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the supervisor's report for a crash", func() bool {
		_, err := os.Stat(dir.Report())
		return err == nil
	})
	if err := syscall.Kill(supervisorOf(name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := dir.WaitGone(hosttest.Bound); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kept, _ := rundir.ListAborted()
		for _, one := range kept {
			if one.Name == name {
				os.RemoveAll(one.Dir)
			}
		}
	})
	return dir
}

// kept returns the remains of the testbed that ls lists.
func kept(t *testing.T, name string) []rundir.Aborted {
	t.Helper()
	var all []struct {
		State string
		rundir.Aborted
	}
	if err := json.Unmarshal([]byte(must(t, "ls", "-o", "json").stdout), &all); err != nil {
		t.Fatal(err)
	}
	var kept []rundir.Aborted
	for _, one := range all {
		if one.Name == name && one.State == "aborted" {
			kept = append(kept, one.Aborted)
		}
	}
	return kept
}

// TestCrashKeepsLogAndReport: whichever command sweeps first moves them, says
// so, and ls lists them until gc.
func TestCrashKeepsLogAndReport(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-crash"
	for _, sweeper := range [][]string{{"ls"}, {"down", "cli-nothing"}, {"inspect", "cli-nothing"},
		{"up", writeFile(t, twoHosts(name))}} {
		dir := crash(t, name)
		before := len(kept0(t, name))
		got := do(t, sweeper...)
		found := kept(t, name)
		if len(found) != before+1 {
			t.Fatalf("%v: %d kept, want %d: %+v", sweeper, len(found), before+1, got)
		}
		last := found[before].Dir
		if !strings.Contains(got.stderr,
			name+" died without being taken down; its log and report are in "+last) {
			t.Errorf("%v does not say where the log is: %q", sweeper, got.stderr)
		}
		if sweeper[0] == "up" {
			must(t, "down", name)
		}
		noTrace(t, name)
		if _, err := os.Stat(filepath.Join(last, "supervisor.log")); err != nil {
			t.Error(err)
		}
		r := readVerdict(t, last)
		if r.Verdict != verdict.Aborted || r.Name != name || r.Testbed.Nodes != 2 || r.PlanHash == "" ||
			!r.Finished.IsZero() {
			t.Errorf("report %+v", r)
		}
		if printed := do(t, "report", last); printed.code != verdict.ExitFail ||
			!strings.Contains(printed.stdout, "ABORTED: "+name+": the testbed's supervisor died") ||
			strings.Contains(printed.stdout, report.HTMLFile) {
			t.Errorf("railbed report: exit %d\n%s%s", printed.code, printed.stdout, printed.stderr)
		}
		if table := must(t, "ls").stdout; !strings.Contains(table, last) {
			t.Errorf("ls does not show %s:\n%s", last, table)
		}
		if strings.Contains(must(t, "ls").stderr, name) {
			t.Error("ls tells of it twice")
		}
		if _, err := os.Stat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", dir.Path)
		}
	}
	if rundir.ReportFormat != report.Format {
		t.Errorf("package rundir writes reports of format %q, package report reads %q", rundir.ReportFormat,
			report.Format)
	}
}

// kept0 lists without a sweep, so that another command is the first to do one.
func kept0(t *testing.T, name string) []rundir.Aborted {
	t.Helper()
	all, err := rundir.ListAborted()
	if err != nil {
		t.Fatal(err)
	}
	var kept []rundir.Aborted
	for _, one := range all {
		if one.Name == name {
			kept = append(kept, one)
		}
	}
	return kept
}

// TestShortReportPrints: the one of a testbed that died before its supervisor
// could write one.
func TestShortReportPrints(t *testing.T) {
	dir, lock, err := rundir.Claim("cli-short")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(dir.Log(), []byte("last words\n"), 0o600), lock.Close()); err != nil {
		t.Fatal(err)
	}
	must(t, "gc", "--keep-aborted")
	found := kept0(t, "cli-short")
	if len(found) != 1 {
		t.Fatalf("kept %+v", found)
	}
	defer os.RemoveAll(found[0].Dir)
	if printed := do(t, "report", found[0].Dir); printed.code != verdict.ExitFail ||
		!strings.HasPrefix(printed.stdout, "ABORTED: cli-short: ") {
		t.Errorf("exit %d\n%s%s", printed.code, printed.stdout, printed.stderr)
	}
}
