package runner

import (
	"context"
	"errors"

	"railbed/capture/report"
	"railbed/fabric/softswitch"
	"railbed/plan/spec"
)

// meet begins a fault of nodes. The supervisor makes the fault. Only the links, which a crash of whole nodes
// takes down, are changed here: other steps may change the same links.
func (f *faultStep) meet(ctx context.Context, s *session) error {
	var nodes []string
	for _, n := range s.plan.Nodes {
		if s.plan.FaultNode(f.spec, n.Name) {
			nodes = append(nodes, n.Name)
		}
	}
	done := harmOf(f.spec, nodes, s.dilation().Wait)
	s.keepHarm(done) // before other steps fail because of it
	if f.spec.Crash && !f.spec.OfPrograms() {
		if err := f.unplug(ctx, s, nodes); err != nil {
			return err
		}
	}
	asked := *f.spec
	asked.For = 0 // undo ends it
	if err := s.testbed.AddFault(ctx, asked); err != nil {
		return err
	}
	f.clear = s.testbed.ClearFaults
	return f.hitNothing(ctx, s, done)
}

// hitNothing corrects what errors say of a fault that acts once, and found nothing to act on.
func (f *faultStep) hitNothing(ctx context.Context, s *session, done *harm) error {
	if f.spec.QueuePairs == "" && !(f.spec.Crash && f.spec.OfPrograms()) {
		return nil
	}
	all, err := s.testbed.Faults(ctx)
	for _, state := range all {
		if state.Name == f.spec.Name && state.Hit == 0 {
			s.mu.Lock()
			done.does, done.killed = "hit nothing", nil
			s.mu.Unlock()
		}
	}
	return err
}

// unplug takes the links of nodes down.
func (f *faultStep) unplug(ctx context.Context, s *session, nodes []string) error {
	for _, node := range nodes {
		for _, l := range s.plan.Links {
			if l.A.Node != node && l.B.Node != node {
				continue
			}
			undo, err := s.links.apply(ctx, &spec.LinkChange{Where: l.Name, State: down})
			if err != nil {
				return err
			}
			f.plug = append(f.plug, undo)
		}
	}
	return nil
}

// undo implements temporary.
func (f *faultStep) undo(ctx context.Context) error {
	var failures []error
	if f.clear != nil {
		ended, err := f.clear(ctx, f.spec.Name)
		for i := range ended {
			f.did(&ended[i])
		}
		failures, f.clear = append(failures, err), nil
	}
	for _, plug := range f.plug {
		failures = append(failures, plug(ctx))
	}
	f.plug = nil
	return errors.Join(failures...)
}

// did adds to the row of the report what the fault did until it was cleared.
func (f *faultStep) did(ended *softswitch.FaultState) {
	f.row.Matched, f.row.Hit = f.row.Matched+ended.Matched, f.row.Hit+ended.Hit
	for i, of := range ended.Places {
		if i == len(f.row.Places) { // else the step is repeated, at the same nodes
			f.row.Places = append(f.row.Places, report.FaultPlace{Port: of.Port})
		}
		at := &f.row.Places[i]
		at.Matched, at.Hit, at.Killed = at.Matched+of.Matched, at.Hit+of.Hit, at.Killed+of.Killed
	}
}
