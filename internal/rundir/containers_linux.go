package rundir

import (
	"errors"
	"fmt"
	"time"
)

// ErrEngineAway is wrapped by errors about containers that remain because their engine does not
// answer.
var ErrEngineAway = errors.New("the engine does not answer")

// removeContainers is the function passed to UseContainers.
var removeContainers = func(host, dir string, wait time.Duration, dryRun bool) ([]string, error) {
	return nil, fmt.Errorf("remove containers of %s: this program has not called UseContainers", host)
}

// UseContainers sets the function that removes the containers which the testbed with a run
// directory left in an engine. The engine may take wait for each answer. With dryRun the containers
// are only listed. A program that sweeps calls UseContainers before anything else.
func UseContainers(remove func(host, dir string, wait time.Duration, dryRun bool) ([]string, error)) {
	removeContainers = remove
}
