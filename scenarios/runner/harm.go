package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
)

// harm is the effect of a fault on nodes.
type harm struct {
	fault, does string
	nodes       []string  // that crashed or hang as a whole
	until       time.Time // zero for no end
	killed      []string  // nodes in which programs were or may be killed
}

// harmPatience is how long a stack or a probe may go on after one of its nodes crashed, or began to hang for
// ever. Launchers and clients notice the end of their peers within seconds, or never.
const harmPatience = 20 * time.Second

// errHarmed ends a step that does not notice the end of a peer.
var errHarmed = fmt.Errorf("its programs did not end within %v of the fault", harmPatience)

// harmOf describes a fault of nodes or programs, a partition or a reboot. It returns nil for other faults.
func harmOf(f *spec.Fault, nodes []string, by func(time.Duration) time.Duration) *harm {
	kind := f.Kind()
	if kind.Harm == "" {
		return nil
	}
	h := &harm{fault: f.Name}
	who := cmp.Or(strings.Join(nodes, ", "), f.Where)
	switch {
	case f.Rank != nil:
		who = fmt.Sprintf("rank %d in %s", *f.Rank, who)
	case f.Program != "":
		who = f.Program + " in " + who
	case kind.Ends: // else the node's other programs may do without them
		h.nodes = nodes
	}
	if h.does = fmt.Sprintf(kind.Harm, who, f.Settings(" and ")); kind.Kills {
		h.killed = nodes
	}
	if f.For > 0 && !f.Crash { // crashed programs stay dead
		h.until = time.Now().Add(by(time.Duration(f.For)))
	}
	return h
}

// keepHarm keeps what a fault did, and limits the steps that wait for its nodes.
func (s *session) keepHarm(h *harm) {
	if h == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.harms = append(s.harms, h)
	for _, limit := range s.harmed {
		limit(h)
	}
}

// withPatience returns a context that ends some time after one of the nodes has crashed or hangs for ever.
func (s *session) withPatience(ctx context.Context, nodes []string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := func(h *harm) {
		met := slices.ContainsFunc(h.nodes, func(n string) bool { return slices.Contains(nodes, n) })
		if met && h.until.IsZero() {
			timer := time.AfterFunc(harmPatience, func() { cancel(errHarmed) })
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.harmed = append(s.harmed, limit)
	return ctx, func() { cancel(nil) }
}

// killed reports whether a fault explains how a program in a node ended. A crash of the node explains every
// end. A crash of some of its programs, and little memory, explain only that the program was killed.
func (s *session) killed(node string, err error) bool {
	var exit *testbed.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.harms, func(h *harm) bool {
		return slices.Contains(h.killed, node) && (len(h.nodes) > 0 || exit.Signal == syscall.SIGKILL)
	})
}

// withFaults adds to the error of a step that began at a time the faults of nodes that it met. A program that
// failed because of them does not show that the host lacks something.
func (s *session) withFaults(err error, began time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []string
	for _, h := range s.harms {
		if h.until.IsZero() || h.until.After(began) {
			faults = append(faults, fmt.Sprintf("; fault %s: %s", h.fault, h.does))
		}
	}
	switch text := strings.Join(faults, ""); {
	case text == "":
		return err
	case errors.Is(err, verdict.ErrUnsupported):
		return fmt.Errorf("%v%s", err, text)
	default:
		return fmt.Errorf("%w%s", err, text)
	}
}
