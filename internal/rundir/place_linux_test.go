package rundir_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railbed/internal/rundir"
	"railbed/testkit/hosttest"
)

// placeEnv has this executable print where its user's testbeds are.
const placeEnv = "RAILBED_RUNDIR_TEST_PLACE"

func init() {
	if os.Getenv(placeEnv) != "" {
		root, err := rundir.Root()
		fmt.Printf("%s|%s|%v", root, rundir.Elsewhere(), err)
		os.Exit(0)
	}
}

// Ordinary users of the host.
const victim, attacker = 61001, 61002

// placeOf returns the directory of a user's testbeds, the directories that were passed over, and
// the error.
func placeOf(t *testing.T, uid int, env ...string) (root, passed, err string) {
	t.Helper()
	command := exec.Command("/proc/self/exe")
	command.Env = append(env, placeEnv+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid),
		Gid: uint32(uid)}}
	output, runErr := command.CombinedOutput()
	parts := strings.Split(string(output), "|")
	if runErr != nil || len(parts) != 3 {
		t.Fatalf("%v: %s", runErr, output)
	}
	return parts[0], parts[1], parts[2]
}

// worldWritable is a directory as /tmp is.
func worldWritable(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rundir") // whose parents others can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func owned(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// Another user who makes a user's run directory first gets nothing of that user's, and does
// not keep the user from working.
func TestAnotherUsersDirectoryIsPassedOver(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tmp := worldWritable(t, 0o777|os.ModeSticky)
	first := filepath.Join(tmp, fmt.Sprintf("railbed-%d", victim))
	owned(t, first, attacker, 0o777)
	owned(t, first+".1", attacker, 0o777)
	if err := os.Symlink(first, first+".2"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		root, passed, err := placeOf(t, victim, "TMPDIR="+tmp)
		if root != first+".3" || passed != first+" is not a directory of user 61001" || err != "<nil>" {
			t.Errorf("%s, passed over %q, error %s; want %s.3", root, passed, err, first)
		}
	}
	info, err := os.Lstat(first + ".3")
	if err != nil || info.Mode().Perm() != 0o700 || info.Sys().(*syscall.Stat_t).Uid != victim {
		t.Errorf("%v, %v; want mode 0700 and user %d", info, err, victim)
	}
	// Where the others go, the testbeds stay found.
	for _, path := range []string{first, first + ".1", first + ".2"} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if root, _, err := placeOf(t, victim, "TMPDIR="+tmp); root != first+".3" {
		t.Errorf("%s, error %s; want %s.3 still", root, err, first)
	}
	// Whose it is, finds it without a word.
	if root, passed, err := placeOf(t, attacker, "TMPDIR="+tmp); passed != "" || err != "<nil>" ||
		!strings.HasSuffix(root, "-61002") {
		t.Errorf("%s, passed over %q, error %s", root, passed, err)
	}
}

// A directory in which others can replace the run directory is refused.
func TestDirectoriesThatOthersCanReplaceAreRefused(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	loose := worldWritable(t, 0o777)
	if _, _, err := placeOf(t, victim, "TMPDIR="+loose); !strings.Contains(err, "other users can replace") {
		t.Errorf("not sticky: %s", err)
	}
	theirs := worldWritable(t, 0o777|os.ModeSticky)
	if err := os.Chown(theirs, attacker, attacker); err != nil {
		t.Fatal(err)
	}
	if _, _, err := placeOf(t, victim, "XDG_RUNTIME_DIR="+theirs); !strings.Contains(err,
		"belongs to user 61002") {
		t.Errorf("another user's: %s", err)
	}
	open := worldWritable(t, 0o777|os.ModeSticky)
	owned(t, filepath.Join(open, "railbed"), victim, 0o755)
	if _, _, err := placeOf(t, victim, "XDG_RUNTIME_DIR="+open); !strings.Contains(err, "chmod 700") {
		t.Errorf("own, and open to others: %s", err)
	}
}

// The directory of a testbed that another user's configuration names is private to its owner.
func TestCheckPrivate(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tmp := worldWritable(t, 0o777|os.ModeSticky)
	make := func(name string, root, dir int, rootMode, mode os.FileMode) rundir.Dir {
		path := filepath.Join(tmp, name)
		owned(t, path, root, rootMode)
		owned(t, filepath.Join(path, "t"), dir, mode)
		return rundir.Dir{Name: "t", Path: filepath.Join(path, "t")}
	}
	for _, test := range []struct {
		name string
		dir  rundir.Dir
		want string
	}{
		{"the owner's", make("a", victim, victim, 0o700, 0o700), ""},
		{"not there", rundir.Dir{Name: "t", Path: filepath.Join(tmp, "none", "t")}, ""},
		{"another user's", make("b", attacker, attacker, 0o700, 0o700), "belongs to user 61002"},
		{"in another user's", make("c", attacker, victim, 0o700, 0o700), "belongs to user 61002"},
		{"open to others", make("d", victim, victim, 0o755, 0o755), "mode 0755"},
		{"in one that is", make("e", victim, victim, 0o777, 0o700), "mode 0777"},
	} {
		err := test.dir.CheckPrivate(0, victim)
		if test.want == "" && err != nil ||
			test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
