package rundir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// ownRoot gives the test a root directory of its own, where it is not root.
func ownRoot(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	}
	root, err := rundir.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func claim(t *testing.T, name string) (rundir.Dir, *os.File) {
	t.Helper()
	dir, lock, err := rundir.Claim(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lock.Close()
		os.RemoveAll(dir.Path)
	})
	return dir, lock
}

// TestInvalidName: the error states the rule that Of checks, not the narrower rule of a file.
func TestInvalidName(t *testing.T) {
	ownRoot(t)
	for _, name := range []string{"", ".hidden", "..", "a/b"} {
		if _, err := rundir.Of(name); err == nil ||
			!strings.HasSuffix(err.Error(), "a directory name without / that does not begin with a dot") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := rundir.Of("Not_a_name_in_a_file"); err != nil {
		t.Error(err)
	}
}

func TestClaimIsExclusive(t *testing.T) {
	ownRoot(t)
	dir, lock := claim(t, "rundir-exclusive")
	if _, _, err := rundir.Claim("rundir-exclusive"); !errors.Is(err, rundir.ErrRunning) {
		t.Errorf("second claim: %v, want ErrRunning", err)
	}
	if !dir.Running() {
		t.Error("a claimed directory is not running")
	}
	if _, err := rundir.Sweep(rundir.SweepOptions{Forget: true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir.Path); err != nil {
		t.Errorf("a sweep removed what is claimed: %v", err)
	}
	lock.Close()
	if dir.Running() {
		t.Error("running after its lock is gone")
	}
	if err := os.WriteFile(filepath.Join(dir.Path, "remains"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, lock := claim(t, "rundir-exclusive")
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(again.Path, "remains")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a claim keeps what the dead one left")
	}
}

// TestSweepRemovesItsOwnOnly: a link that matches its record is removed. A link that was replaced,
// or that was not recorded, stays.
func TestSweepRemovesItsOwnOnly(t *testing.T) {
	ownRoot(t)
	names := filepath.Join(t.TempDir(), "names")
	dir, lock := claim(t, "rundir-sweep")
	link := func(name, target string) rundir.Link {
		return rundir.Link{Path: filepath.Join(names, name), Target: target}
	}
	if err := os.Mkdir(names, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign, replaced, ours := link("foreign", "/nowhere/1"), link("replaced", "/nowhere/2"),
		link("ours", "/nowhere/3")
	if err := os.Symlink("/elsewhere", foreign.Path); err != nil {
		t.Fatal(err)
	}
	taken, err := dir.Publish(rundir.Published{Links: []rundir.Link{foreign, replaced, ours}})
	if err != nil || len(taken) != 1 || taken[0] != foreign.Path {
		t.Fatalf("taken %v, error %v; want the foreign one", taken, err)
	}
	if err := errors.Join(os.Remove(replaced.Path), os.Symlink("/elsewhere", replaced.Path)); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	swept, err := rundir.Sweep(rundir.SweepOptions{Forget: true})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range swept {
		found = found || s.Name == "rundir-sweep"
	}
	if !found {
		t.Errorf("the sweep does not tell of it: %+v", swept)
	}
	for path, want := range map[string]bool{foreign.Path: true, replaced.Path: true, ours.Path: false,
		dir.Path: false} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: exists %t, want %t", path, err == nil, want)
		}
	}
}

// TestMadeDirIsRemovedWhenEmpty and kept when a process uses it.
func TestMadeDirIsRemovedWhenEmpty(t *testing.T) {
	ownRoot(t)
	for _, used := range []bool{false, true} {
		names := filepath.Join(t.TempDir(), "names")
		dir, lock := claim(t, "rundir-made")
		if _, err := dir.Publish(rundir.Published{Links: []rundir.Link{{Path: filepath.Join(names, "a"),
			Target: "/nowhere"}}}); err != nil {
			t.Fatal(err)
		}
		if used {
			if err := os.WriteFile(filepath.Join(names, "theirs"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := dir.Remove(); err != nil {
			t.Error(err)
		}
		lock.Close()
		if _, err := os.Lstat(names); (err == nil) != used {
			t.Errorf("directory made for links, used %t: exists %t", used, err == nil)
		}
	}
}

// TestMadeDirIsRemovedByTheLast: if the testbed that made the directory ends first, a testbed that
// lives longer removes it.
func TestMadeDirIsRemovedByTheLast(t *testing.T) {
	ownRoot(t)
	names := filepath.Join(t.TempDir(), "names")
	first, firstLock := claim(t, "rundir-first")
	last, lastLock := claim(t, "rundir-last")
	for _, dir := range []rundir.Dir{first, last} {
		link := rundir.Link{Path: filepath.Join(names, dir.Name), Target: "/nowhere"}
		if _, err := dir.Publish(rundir.Published{Links: []rundir.Link{link}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, lock := range []*os.File{firstLock, lastLock} {
		if _, err := os.Lstat(names); err != nil {
			t.Error(err)
		}
		lock.Close() // as when its process is killed
		if _, err := rundir.Sweep(rundir.SweepOptions{Forget: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(names); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the links outlives the last testbed: %v", err)
	}
}

// TestTornRecord is a crash while the record was written.
func TestTornRecord(t *testing.T) {
	ownRoot(t)
	dir, lock := claim(t, "rundir-torn")
	if err := os.WriteFile(filepath.Join(dir.Path, "published.json"), []byte(`{"links":[{"path":"/et`),
		0o600); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if _, err := rundir.Sweep(rundir.SweepOptions{Forget: true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory is left")
	}
}

func TestNamesStayInside(t *testing.T) {
	ownRoot(t)
	for _, name := range []string{"", ".", "..", "a/b", "../a", "/etc", ".hidden"} {
		if dir, err := rundir.Of(name); err == nil {
			t.Errorf("name %q gives %s", name, dir.Path)
		}
	}
}

// TestForeignRootIsRefused: a directory that others can write to or own.
func TestForeignRootIsRefused(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("cannot run here: root's directory is fixed; the run as nobody does it")
	}
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	if err := os.Mkdir(filepath.Join(base, "railbed"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(base, "railbed"), 0o777); err != nil {
		t.Fatal(err)
	}
	if root, err := rundir.Root(); err == nil {
		t.Errorf("%s with mode 0777 is taken", root)
	}
}

// Names whose testbed has neither a process nor a directory are removed, those of
// others stay.
func TestDanglingNamesAreSwept(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	ownRoot(t)
	if err := os.MkdirAll(rundir.NamesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	live, _ := claim(t, "rundir-live")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	target := func(pid int) string { return fmt.Sprintf("/proc/%d/fd/3", pid) }
	names := map[string]string{ // the targets of links, by name
		"rundir-gone-h0":  target(gone.Process.Pid),
		live.Name + "-h0": target(gone.Process.Pid), // recorded
		// These belong to a dead testbed "rundir-live-b"; its name begins with the name of a
		// running one.
		live.Name + "-b-h0": target(gone.Process.Pid),
		"rundir-foreign-h0": "/nowhere/fd/3",
		"rundir-here-h0":    target(os.Getpid()),
	}
	if _, err := live.Publish(rundir.Published{Links: []rundir.Link{{
		Path: filepath.Join(rundir.NamesDir, live.Name+"-h0"), Target: names[live.Name+"-h0"],
	}}}); err != nil {
		t.Fatal(err)
	}
	for name, to := range names {
		path := filepath.Join(rundir.NamesDir, name)
		t.Cleanup(func() { os.Remove(path) })
		if name == live.Name+"-h0" {
			continue
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() // so that descriptor 3 of this process is open
	for _, dry := range []bool{true, false} {
		swept, err := rundir.Sweep(rundir.SweepOptions{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, s := range swept {
			told = told || slices.Contains(s.Removed, filepath.Join(rundir.NamesDir, "rundir-gone-h0"))
		}
		if !told {
			t.Errorf("a sweep (dry: %v) tells %+v, want the name that dangles", dry, swept)
		}
		for name := range names {
			_, err := os.Lstat(filepath.Join(rundir.NamesDir, name))
			if want := dry || name != "rundir-gone-h0" && name != live.Name+"-b-h0"; want != (err == nil) {
				t.Errorf("after a sweep (dry: %v) %s is there: %v, want %v", dry, name, err == nil, want)
			}
		}
	}
}
