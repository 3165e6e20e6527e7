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

// ErrInUse reports that another process has reserved a part of a testbed.
var ErrInUse = errors.New("in use")

// Reserve reserves a part of a running testbed, such as a switch's job, for this process until it
// calls release or ends in any way. If another process holds the reservation, the error wraps
// ErrInUse and names that process.
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
		// The PID has a fixed width, so that it overwrites the previous holder's.
		if _, err = fmt.Fprintf(file, "%10d\n", os.Getpid()); err != nil {
			file.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reserve %s: %w", what, err)
	}
	return file.Close, nil
}

// holder names the process that has a reservation, from the file: the kernel does not report which
// process holds an open file description lock.
func holder(path string) string {
	text, err := os.ReadFile(path)
	if pid, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}
