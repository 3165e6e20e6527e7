package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"railbed/nodes/cgroup"
)

// limited executes a request about the control group.
func (in *inside) limited(asked groupRequest) (*cgroup.Reading, error) {
	var err error
	switch asked {
	case groupExpose, groupRestore:
		in.exposed = asked == groupExpose
		err = expose(in.exposed)
	case groupKill:
		err = in.group.KillLargest()
	}
	if err != nil {
		return nil, err
	}
	now, err := in.group.Read()
	return &now, err
}

// mostExposed is the largest oom_score_adj (proc(5)): the kernel kills such a process before all others.
const mostExposed = "1000\n"

// expose makes the kernel kill other processes of the container before this one, or ends that. It leaves
// processes alone that have set their own oom_score_adj. A process may start another one meanwhile.
func expose(begin bool) error {
	const file, attempts = "/oom_score_adj", 100
	usual, err := os.ReadFile("/proc/self" + file)
	from, to := string(usual), mostExposed
	if !begin {
		from, to = to, from
	}
	for range attempts {
		changed := false
		paths, _ := filepath.Glob("/proc/[0-9]*" + file)
		for _, path := range paths {
			is, _ := os.ReadFile(path) // it may have ended
			if path == "/proc/1"+file || string(is) != from {
				continue
			}
			writeErr := os.WriteFile(path, []byte(to), 0)
			if changed = changed || writeErr == nil; errors.Is(writeErr, unix.ESRCH) ||
				errors.Is(writeErr, fs.ErrNotExist) {
				writeErr = nil
			}
			err = errors.Join(err, writeErr)
		}
		if err != nil {
			return fmt.Errorf("choose which programs are killed without memory: %w", err)
		}
		if !changed {
			break
		}
	}
	return nil
}
