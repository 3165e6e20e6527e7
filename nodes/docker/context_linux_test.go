package docker

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"railbed/internal/input"
)

// A FIFO in place of .dockerignore does not block the build.
func TestIgnoreListThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, ignoreName), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contextOf(dir); !errors.As(err, new(*input.KindError)) {
		t.Errorf("error %v, want that it is a FIFO", err)
	}
}
