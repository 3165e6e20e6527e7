package testbed

import (
	"errors"
	"io/fs"
	"os"

	"railbed/nodes/docker"
	"railbed/testbed/rundir"
)

// SweepContainers removes containers, and images made for them, whose testbed is dead
// and has no run directory any more, as after the host's restart, in the engine that
// DOCKER_HOST names. Those of a testbed that is there are rundir.Sweep's.
func SweepContainers(dryRun bool) ([]rundir.Swept, error) {
	host, testbeds, err := docker.Marked()
	var all []rundir.Swept
	for dir, name := range testbeds {
		if _, statErr := os.Lstat(dir); !errors.Is(statErr, fs.ErrNotExist) {
			continue
		}
		removed, sweepErr := docker.Sweep(host, dir, rundir.Patience, dryRun)
		err = errors.Join(err, sweepErr)
		all = append(all, rundir.Swept{Name: name, Removed: removed})
	}
	return all, err
}
