package rundir

import (
	"errors"
	"fmt"
	"time"
)

// ErrEngineAway is wrapped when containers are not removed because their engine does
// not answer.
var ErrEngineAway = errors.New("the engine does not answer")

// removeContainers is what UseContainers was given.
var removeContainers = func(host, dir string, wait time.Duration, dryRun bool) ([]string, error) {
	return nil, fmt.Errorf("remove containers of %s: this program does not know how", host)
}

// UseContainers says how the containers are removed that a testbed with the
// run directory left in an engine, which may take so long for each answer; with dryRun
// they are only listed. A program that sweeps calls it first thing.
func UseContainers(remove func(host, dir string, wait time.Duration, dryRun bool) ([]string, error)) {
	removeContainers = remove
}
