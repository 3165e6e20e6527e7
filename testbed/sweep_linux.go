package testbed

import (
	"errors"

	"railbed/internal/rundir"
	"railbed/nodes/docker"
)

// SweepContainers removes containers of dead testbeds that have no run directory any more, and
// images made for them, as after a restart of the host. It uses the engine that DOCKER_HOST names.
// rundir.Sweep removes containers of testbeds that have a run directory.
func SweepContainers(dryRun bool) ([]rundir.Swept, error) {
	host, testbeds, err := docker.Marked()
	var all []rundir.Swept
	for path, name := range testbeds {
		swept, sweepErr := rundir.SweepGone(rundir.Dir{Name: name, Path: path}, host, dryRun)
		if err = errors.Join(err, sweepErr); swept != nil {
			all = append(all, *swept)
		}
	}
	return all, err
}
