package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// A directory for results that another user made in /tmp is refused and stays as it is.
func TestResultsRefuseAnotherUsersDirectory(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const attacker = 61002
	make := func(mode os.FileMode, uid int) string {
		above := filepath.Join(t.TempDir(), "above")
		dir := filepath.Join(above, "out")
		if err := errors.Join(os.Mkdir(above, 0o700), os.Chmod(above, mode), os.Mkdir(dir, 0o755),
			os.Chown(dir, uid, uid)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const likeTmp = 0o777 | os.ModeSticky
	dir := make(likeTmp, attacker)
	if _, err := openResults(dir, nil); !errors.Is(err, ErrResults) ||
		!strings.Contains(err.Error(), "belongs to user 61002") {
		t.Errorf("another user's: %v", err)
	}
	if exists(filepath.Join(dir, markerFile)) {
		t.Error("something was written into another user's directory")
	}
	for what, dir := range map[string]string{
		"the own": make(likeTmp, 0), "another user's where not everybody can make one": make(0o755, attacker),
		"a new one": make(likeTmp, 0) + "2",
	} {
		r, err := openResults(dir, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}
