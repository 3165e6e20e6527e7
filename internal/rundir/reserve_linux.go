package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrInUse says that another process has reserved something of a testbed.
var ErrInUse = errors.New("in use")

// Reserve takes something of a running testbed, such as a switch's job, for this process
// until it releases it or ends, however that is. The error wraps ErrInUse, and says who has
// it, where somebody else does.
func (d Dir) Reserve(what string) (release func() error, err error) {
	path := filepath.Join(d.Path, what+".lock")
	file, err := lockFile(path, os.O_CREATE)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("%w by %s", ErrInUse, holder(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reserve %s: testbed %s is gone", what, d.Name)
	}
	if err == nil {
		// As long whoever writes it, so that nothing is left of who had it before.
		if _, err = fmt.Fprintf(file, "%10d\n", os.Getpid()); err != nil {
			file.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", what, err)
	}
	return file.Close, nil
}

// holder is the process that has a reservation: the kernel does not tell whose an open
// file description lock is.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if pid, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}
