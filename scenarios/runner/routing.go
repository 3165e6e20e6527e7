package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/testbed"
)

// daemonError is the error of a routing daemon that ended unexpectedly, or that did not end
// although a step should have ended it. It fails the run.
type daemonError struct {
	text  string
	cause error
}

func (e *daemonError) Error() string { return e.text }
func (e *daemonError) Unwrap() error { return e.cause }

// errRunsOn is the cause if a daemon has not ended although a step should have ended it.
var errRunsOn = errors.New("the daemon still runs")

// daemonGrace is how long after the last step a daemon may take to end, if a step should have ended
// it.
const daemonGrace = 2 * time.Second

// routing records what the routers' daemons did. virtual converts a real time to the testbed's
// time.
func (r *run) routing(ctx context.Context, tb *testbed.Testbed, virtual func(time.Time) float64) error {
	if r.File.Fabric.Routing == nil {
		return nil
	}
	for end := time.Now().Add(daemonGrace); ; {
		err := r.routingNow(ctx, tb, virtual)
		if !errors.Is(err, errRunsOn) || !time.Now().Before(end) || !clock.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

func (r *run) routingNow(ctx context.Context, tb *testbed.Testbed, virtual func(time.Time) float64) error {
	state, err := tb.Sample(ctx)
	if err != nil {
		return err
	}
	done := &report.Routing{Converged: state.Routing.Converged.Seconds(), Reactions: []report.Reaction{}}
	for _, one := range state.Routing.Reactions {
		at := virtual(one.At)
		done.Reactions = append(done.Reactions, report.Reaction{
			To:      one.To,
			At:      at,
			Routes:  one.Routes,
			Routers: one.Routers,
			First:   virtual(one.At.Add(one.First)) - at,
			Last:    virtual(one.At.Add(one.Last)) - at,
		})
	}
	for _, end := range state.Routing.Ended {
		done.Ended = append(done.Ended,
			report.DaemonEnd{Switch: end.Switch, Daemon: end.Daemon, At: virtual(end.At), How: end.How})
	}
	r.report.Routing = done
	return r.meant(done.Ended)
}

// meant compares the daemons that ended with the daemons that steps should have ended.
func (r *run) meant(ended []report.DaemonEnd) error {
	for i, step := range r.File.Steps {
		began := r.report.Steps[i]
		if step.Exec == nil || began.State == report.Skipped || began.State == report.Cancelled {
			continue
		}
		for _, daemon := range step.Exec.Ends {
			for _, name := range r.Plan.ExecNodes(step.Exec.Nodes) {
				at := slices.IndexFunc(ended, func(e report.DaemonEnd) bool {
					return e.Switch == name && e.Daemon == daemon && e.At >= began.Start
				})
				if at < 0 {
					return &daemonError{fmt.Sprintf(
						"%s: step %s should have ended %s of %s, which still runs", began.Where, began.Name,
						daemon, name), errRunsOn}
				}
				ended[at].Meant = true
			}
		}
	}
	for _, end := range ended {
		if !end.Meant {
			return &daemonError{text: end.String()}
		}
	}
	return nil
}
