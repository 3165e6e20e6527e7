package rundir

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// busyTime is how long a cgroup may still hold processes: a killed supervisor releases its lock a
// moment before the kernel has ended its children.
const busyTime = 2 * time.Second

// removeCgroup removes an empty cgroup. The directory that all testbeds share stays until the last
// testbed ends.
func removeCgroup(path string) error {
	deadline := time.Now().Add(busyTime)
	for {
		err := unix.Rmdir(path)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY), time.Now().After(deadline):
			return fmt.Errorf("remove cgroup %s: %w", path, err)
		case filepath.Base(path) == SharedCgroup:
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}
