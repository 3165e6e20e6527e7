package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"railbed/nodes/docker"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// containerError is the error of a container that ended by itself and did not come back, or of a
// container engine that went away. It fails the run.
type containerError struct{ text string }

func (e *containerError) Error() string { return e.text }

// containers saves the containers' logs. It records what happened to containers without a step's
// request, and how many events were dropped. If the file asks to restart a container that ends, and
// the restart succeeded, the end is not a failure.
func (r *run) containers(ctx context.Context, tb *testbed.Testbed) error {
	ended := map[string]string{} // by node: the last end that was not undone
	crashed := map[string]bool{} // nodes that a fault crashed
	for _, f := range r.report.Faults {
		for _, at := range f.Places {
			crashed[at.Port] = crashed[at.Port] || f.Does == spec.FaultCrashes
		}
	}
	err := tb.Events(ctx, false, func(e supervisor.Event) error {
		line := fmt.Sprintf("%s: %s", e.Subject, e.Detail)
		switch e.Kind {
		case docker.Stopping, docker.Died, docker.Ended, docker.EngineLost:
			if !crashed[e.Subject] {
				ended[e.Subject] = line
			}
		case docker.Restarted:
			delete(ended, e.Subject)
		case supervisor.EventsDropped:
			r.report.EventsDropped = e.Count
			return nil
		default:
			return nil
		}
		r.report.Containers = append(r.report.Containers, line)
		return nil
	})
	for _, n := range r.Plan.Nodes {
		if n.Container == nil {
			continue
		}
		err = errors.Join(err, r.results.replace(filepath.Join("logs", n.Name, "container.log"),
			func(w io.Writer) error {
				return tb.Node(n.Name).Log(ctx, w)
			}))
	}
	for _, line := range r.report.Containers {
		for _, left := range ended {
			if line == left {
				return &containerError{line} // the first; it may also be why a log cannot be read
			}
		}
	}
	return err
}
