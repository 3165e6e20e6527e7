package testbed

import (
	"errors"

	"railbed/internal/rundir"
	"railbed/nodes/docker"
)

// SweepContainers removes containers, and images made for them, whose testbed is dead
// and has no run directory any more, as after the host's restart, in the engine that
// DOCKER_HOST names. Those of a testbed that is there are rundir.Sweep's.
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
