package runner

import (
	"context"
	"errors"

	"railbed/capture/report"
	"railbed/nodes/cgroup"
	"railbed/plan/spec"
	"railbed/testbed"
)

// nodeFault is a kind of fault of nodes.
type nodeFault interface {
	// begin begins the fault at a node. It returns the number of processes that it hit, or of nodes.
	begin(ctx context.Context, node string) (hit uint64, err error)
	// count adds what the fault did at the node since begin, or since the last call.
	count(ctx context.Context, node string, at *report.FaultPlace) error
	// end ends the fault at a node.
	end(ctx context.Context, node string) error
}

// kindOf returns the kind of a fault of nodes.
func kindOf(f *spec.Fault, s *session) nodeFault {
	which := testbed.Programs{Name: f.Program, Rank: f.Rank}
	switch {
	case f.Crash:
		return &crash{session: s, which: which, whole: !f.OfPrograms()}
	case f.Hang:
		return &hang{session: s, which: which}
	case f.Slow != nil:
		return &slow{session: s, cpu: f.Slow.CPU}
	case f.Clock != nil:
		return &undone{restore: map[string]func(context.Context) error{},
			start: func(ctx context.Context, node string) (func(context.Context) error, error) {
				return s.testbed.SkewClock(ctx, node, *f.Clock)
			}}
	case f.Disk != "":
		return &undone{start: s.testbed.FillDisk, restore: map[string]func(context.Context) error{}}
	case f.QueuePairs != "":
		return &pairs{session: s}
	}
	return &squeeze{session: s, fault: f, before: map[string]cgroup.MemoryEvents{}}
}

// meet begins a fault of nodes.
func (f *faultStep) meet(ctx context.Context, s *session) error {
	var nodes []string
	for _, n := range s.plan.Nodes {
		if s.plan.FaultNode(f.spec, n.Name) {
			nodes = append(nodes, n.Name)
		}
	}
	s.keepHarm(harmOf(f.spec, nodes, s.dilation().Wait)) // before other steps fail because of it
	f.kind = kindOf(f.spec, s)
	for i, name := range nodes {
		f.nodes = append(f.nodes, name)
		hit, err := f.kind.begin(ctx, name)
		if err != nil {
			return err
		}
		if i == len(f.row.Places) { // else the step is repeated
			f.row.Places = append(f.row.Places, report.FaultPlace{Port: name})
		}
		at := &f.row.Places[i]
		at.Matched, at.Hit = at.Matched+1, at.Hit+hit
		f.row.Matched, f.row.Hit = f.row.Matched+1, f.row.Hit+hit
	}
	return nil
}

// count adds to the report what the fault did at the nodes at which it is in force.
func (f *faultStep) count(ctx context.Context) error {
	var failures []error
	for i, node := range f.nodes {
		if i == len(f.row.Places) {
			break // the fault failed to begin there
		}
		at := &f.row.Places[i]
		f.row.Hit -= at.Hit
		failures = append(failures, f.kind.count(ctx, node, at))
		f.row.Hit += at.Hit
	}
	return errors.Join(failures...)
}

// undo implements temporary.
func (f *faultStep) undo(ctx context.Context) error {
	failures := []error{f.count(ctx)}
	for _, node := range f.nodes {
		failures = append(failures, f.kind.end(ctx, node))
	}
	f.nodes = nil
	return errors.Join(failures...)
}

// counted is embedded by faults that know what they hit when they begin.
type counted struct{}

func (counted) count(context.Context, string, *report.FaultPlace) error { return nil }

// crash kills programs. With whole, it first takes the links of their nodes down.
type crash struct {
	counted
	session *session
	which   testbed.Programs
	whole   bool
	restore []func(context.Context) error
}

func (k *crash) begin(ctx context.Context, node string) (uint64, error) {
	for _, l := range k.session.plan.Links {
		if !k.whole || l.A.Node != node && l.B.Node != node {
			continue
		}
		undo, err := k.session.links.apply(ctx, &spec.LinkChange{Where: l.Name, State: down})
		if err != nil {
			return 0, err
		}
		k.restore = append(k.restore, undo)
	}
	processes, err := k.session.testbed.KillPrograms(ctx, node, k.which)
	return uint64(processes), err
}

// end takes the links of all nodes up.
func (k *crash) end(ctx context.Context, _ string) error {
	var failures []error
	for _, restore := range k.restore {
		failures = append(failures, restore(ctx))
	}
	k.restore = nil
	return errors.Join(failures...)
}

// hang stops programs.
type hang struct {
	counted
	session *session
	which   testbed.Programs
}

func (k *hang) begin(ctx context.Context, node string) (uint64, error) {
	processes, err := k.session.testbed.Hang(ctx, node, k.which)
	return uint64(processes), err
}

func (k *hang) end(ctx context.Context, node string) error {
	return k.session.testbed.Resume(ctx, node, k.which)
}

// slow limits processor time.
type slow struct {
	counted
	session *session
	cpu     float64
}

func (k *slow) begin(ctx context.Context, node string) (uint64, error) {
	return 1, k.session.testbed.Slow(ctx, node, k.cpu)
}

func (k *slow) end(ctx context.Context, node string) error {
	return k.session.testbed.Slow(ctx, node, 0)
}

// undone is a fault whose beginning returns how to end it.
type undone struct {
	counted
	start   func(ctx context.Context, node string) (undo func(context.Context) error, err error)
	restore map[string]func(context.Context) error // by node
}

func (k *undone) begin(ctx context.Context, node string) (_ uint64, err error) {
	k.restore[node], err = k.start(ctx, node)
	return 1, err
}

func (k *undone) end(ctx context.Context, node string) error { return k.restore[node](ctx) }

// pairs breaks queue pairs.
type pairs struct {
	counted
	session *session
}

func (k *pairs) begin(ctx context.Context, node string) (uint64, error) {
	lost, err := k.session.testbed.LoseQueuePairs(ctx, node)
	return uint64(lost), err
}

// end does nothing: a transport does not make the queue pairs again.
func (*pairs) end(context.Context, string) error { return nil }

// squeeze limits memory. It hits a node if the programs of the node need more.
type squeeze struct {
	session *session
	fault   *spec.Fault
	before  map[string]cgroup.MemoryEvents // by node
}

func (k *squeeze) begin(ctx context.Context, node string) (_ uint64, err error) {
	k.before[node], err = k.session.testbed.LimitMemory(ctx, node, *k.fault.Memory)
	return 0, err
}

func (k *squeeze) count(ctx context.Context, node string, at *report.FaultPlace) error {
	now, err := k.session.testbed.MemoryEvents(ctx, node)
	if err != nil {
		return err
	}
	if now.Reached > k.before[node].Reached {
		at.Hit++
	}
	at.Killed += now.Killed - k.before[node].Killed
	k.before[node] = now
	return nil
}

func (k *squeeze) end(ctx context.Context, node string) error {
	_, err := k.session.testbed.LimitMemory(ctx, node, 0)
	return err
}
