package rundir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
)

// die leaves the run directory of a testbed whose supervisor has died.
func die(t *testing.T, name, log string) rundir.Dir {
	t.Helper()
	dir, lock := claim(t, name)
	defer lock.Close()
	if err := os.WriteFile(dir.Log(), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// keptOf are the kept directories of a testbed; they go with the test.
func keptOf(t *testing.T, name string) []rundir.Aborted {
	t.Helper()
	all, err := rundir.ListAborted()
	if err != nil {
		t.Fatal(err)
	}
	var kept []rundir.Aborted
	for _, one := range all {
		if one.Name == name {
			kept = append(kept, one)
			t.Cleanup(func() { os.RemoveAll(one.Dir) })
		}
	}
	return kept
}

// TestSweepKeepsLogAndReport: the supervisor's own report where it came to
// write one, and a short one where it did not.
func TestSweepKeepsLogAndReport(t *testing.T) {
	ownRoot(t)
	for _, written := range []string{"", "the supervisor's report"} {
		dir := die(t, "rundir-kept-log", "last words\n")
		if written != "" {
			if err := os.WriteFile(dir.Report(), []byte(written), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := len(keptOf(t, dir.Name))
		swept, err := rundir.Sweep(rundir.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kept := keptOf(t, dir.Name)
		if len(kept) != before+1 {
			t.Fatalf("%d kept after %d, want one more; swept %+v", len(kept), before, swept)
		}
		last := kept[before]
		if since := time.Since(last.Found); since < 0 || since > time.Minute {
			t.Errorf("found %v ago", since)
		}
		told := false
		for _, s := range swept {
			told = told || s.Kept == last.Dir
		}
		if !told {
			t.Errorf("the sweep does not tell of %s: %+v", last.Dir, swept)
		}
		if log, err := os.ReadFile(filepath.Join(last.Dir, "supervisor.log")); err != nil ||
			string(log) != "last words\n" {
			t.Errorf("the log holds %q, error %v", log, err)
		}
		text, err := os.ReadFile(filepath.Join(last.Dir, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		if written != "" {
			if string(text) != written {
				t.Errorf("the report is %q, want %q", text, written)
			}
			continue
		}
		// That railbed report prints it is a test of the command.
		var r struct {
			Name              string
			Verdict           verdict.Verdict
			Started, Finished time.Time
		}
		err = json.Unmarshal(text, &r)
		if err != nil || r.Verdict != verdict.Aborted || r.Name != dir.Name || r.Started.IsZero() ||
			!r.Finished.IsZero() {
			t.Errorf("report %+v, error %v", r, err)
		}
		if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", dir.Path)
		}
	}
}

// TestClaimKeepsTheLog of the dead testbed of the same name.
func TestClaimKeepsTheLog(t *testing.T) {
	ownRoot(t)
	die(t, "rundir-kept-claim", "x\n")
	_, lock := claim(t, "rundir-kept-claim")
	defer lock.Close()
	if kept := keptOf(t, "rundir-kept-claim"); len(kept) != 1 {
		t.Errorf("kept %+v, want one", kept)
	}
}

// TestForgetLeavesNothing: a sweep with Forget keeps nothing of dead testbeds, or of testbeds that
// died before.
func TestForgetLeavesNothing(t *testing.T) {
	ownRoot(t)
	die(t, "rundir-forget", "first\n")
	if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
		t.Fatal(err)
	}
	kept := keptOf(t, "rundir-forget")
	dir := die(t, "rundir-forget", "second\n")
	dry, err := rundir.Sweep(rundir.SweepOptions{Forget: true, DryRun: true})
	if err != nil || len(keptOf(t, "rundir-forget")) != 1 {
		t.Fatalf("a dry run removed something, or %v", err)
	}
	swept, err := rundir.Sweep(rundir.SweepOptions{Forget: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{kept[0].Dir, dir.Path} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", path)
		}
		if !strings.Contains(fmt.Sprint(swept), path) || !strings.Contains(fmt.Sprint(dry), path) {
			t.Errorf("%s is not told by %+v and %+v", path, dry, swept)
		}
	}
	if all, err := rundir.ListAborted(); err != nil || len(all) > 0 {
		t.Errorf("left: %+v, error %v", all, err)
	}
}

// TestKeptIsBounded in number, in age and in the length of a log.
func TestKeptIsBounded(t *testing.T) {
	root := ownRoot(t)
	t.Run("length", func(t *testing.T) {
		lines := strings.Repeat("0123456789abcde\n", rundir.KeptLog/16)
		die(t, "rundir-long", "gone\n"+lines)
		if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
			t.Fatal(err)
		}
		kept := keptOf(t, "rundir-long")
		if len(kept) != 1 {
			t.Fatalf("kept %+v", kept)
		}
		log, err := os.ReadFile(filepath.Join(kept[0].Dir, "supervisor.log"))
		if err != nil || len(log) > rundir.KeptLog || len(log) < rundir.KeptLog-32 ||
			!strings.HasSuffix(lines, string(log)) || log[0] != '0' {
			t.Errorf("%d bytes that begin with %.20q, error %v; want whole lines of the end", len(log), log,
				err)
		}
	})
	t.Run("number", func(t *testing.T) {
		for range rundir.KeptCount + 2 {
			die(t, "rundir-many", "x\n")
			if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if kept := keptOf(t, "rundir-many"); len(kept) != rundir.KeptCount {
			t.Errorf("%d kept, want the latest %d", len(kept), rundir.KeptCount)
		}
	})
	t.Run("age", func(t *testing.T) {
		for age, want := range map[time.Duration]bool{rundir.KeptFor - time.Hour: true,
			rundir.KeptFor + time.Hour: false} {
			old := filepath.Join(root, ".aborted",
				"rundir-old-"+time.Now().Add(-age).UTC().Format("20060102T150405.000000Z"))
			if err := os.MkdirAll(old, 0o700); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(old)
			// Of the latest, so that only its age is a reason to remove it.
			for _, other := range keptOf(t, "rundir-many") {
				os.RemoveAll(other.Dir)
			}
			if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(old); (err == nil) != want {
				t.Errorf("%v old: kept %t, want %t", age, err == nil, want)
			}
		}
	})
}

// TestTryDoesNotWait for a process that holds the root lock and does not release it.
func TestTryDoesNotWait(t *testing.T) {
	root := ownRoot(t)
	die(t, "rundir-try", "x\n")
	release := holdRoot(t, root)
	swept, err := rundir.Sweep(rundir.SweepOptions{Try: true})
	if err != nil || swept != nil {
		t.Errorf("swept %+v, error %v; want nothing done", swept, err)
	}
	release()
	if _, err := rundir.Sweep(rundir.SweepOptions{Try: true}); err != nil {
		t.Fatal(err)
	}
	if kept := keptOf(t, "rundir-try"); len(kept) != 1 {
		t.Errorf("kept %+v, want one", kept)
	}
}

// holdRoot holds the lock that claims and sweeps take, as another process would.
func holdRoot(t *testing.T, root string) (release func()) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(root, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { file.Close() }
}
