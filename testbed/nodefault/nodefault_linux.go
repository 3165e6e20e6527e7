// Package nodefault makes faults of nodes (spec.Fault.OfNodes): it kills and stops programs, limits processor
// time and memory, fills disks, changes clocks and breaks queue pairs.
//
// A process inside the node does most of this. It is a part of the executable, which Parts returns.
package nodefault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"railbed/fabric/softswitch"
	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/nodes/cgroup"
	"railbed/plan"
	"railbed/plan/spec"
)

// Parts returns the parts of the executable that run in nodes.
func Parts() reexec.Parts {
	return reexec.Parts{signalPart: signalMain, clockPart: clockMain, diskPart: diskMain,
		pairsPart: pairsMain}
}

// Host is the testbed of the nodes.
type Host interface {
	// Run runs a part of the executable in a node, and returns the number that the part prints.
	Run(ctx context.Context, node, part string, args ...string) (int64, error)
	// Slow limits the processor time of a node to a number of cores. 0 restores the limit of the file.
	Slow(node string, cores float64) error
	// Squeeze limits the memory of a node. 0 restores the limit of the file, and nil changes nothing. It
	// returns what limits of the node's memory did before.
	Squeeze(node string, limit *units.Bytes) (cgroup.MemoryEvents, error)
	// Unplug takes the links of a node down that are up. The function that it returns takes them up.
	Unplug(ctx context.Context, node string) (plug func(context.Context) error, err error)
}

// kind is a kind of fault of nodes.
type kind interface {
	// begin begins the fault at a node. It returns the number of processes that it hit, or of nodes.
	begin(ctx context.Context, node string) (hit uint64, err error)
	// count counts what the fault did at the node since begin, or since the last call.
	count(node string, did *softswitch.FaultPlaceState) error
	// end ends the fault at a node.
	end(ctx context.Context, node string) error
}

// acting is embedded by the kinds.
type acting struct {
	plan  *plan.Plan
	fault *spec.Fault
	host  Host
}

// within runs a part in a node. The part's first argument identifies the PID namespace of this process, for
// inNode. For a virtual machine, which has its own kernel and so no such namespace, it is empty.
func (a *acting) within(ctx context.Context, node, part string, args ...string) (int64, error) {
	outside := ""
	if n := a.plan.Node(node); n == nil || n.Runtime != spec.VM {
		var err error
		if outside, err = pidNamespace(); err != nil {
			return 0, err
		}
	}
	return a.host.Run(ctx, node, part, append([]string{outside}, args...)...)
}

// kindOf returns the kind of a fault of nodes.
func kindOf(a acting) kind {
	switch f := a.fault; {
	case f.Crash:
		return &crash{acting: a, release: map[string]func(context.Context) error{}}
	case f.Hang:
		return &hang{acting: a}
	case f.Slow != nil:
		return &slow{acting: a}
	case f.Clock != nil:
		return &skew{acting: a, began: map[string]int64{}}
	case f.Disk != "":
		return &fill{acting: a, size: map[string]int64{}}
	case f.QueuePairs != "":
		return &pairs{acting: a}
	}
	return &squeeze{acting: a, before: map[string]cgroup.MemoryEvents{},
		hit: map[string]bool{}}
}

// counted is embedded by faults that know what they hit when they begin.
type counted struct{}

func (counted) count(string, *softswitch.FaultPlaceState) error { return nil }

// slow limits processor time.
type slow struct {
	counted
	acting
}

func (k *slow) begin(_ context.Context, node string) (uint64, error) {
	return 1, k.host.Slow(node, k.fault.Slow.CPU)
}

func (k *slow) end(_ context.Context, node string) error { return k.host.Slow(node, 0) }

// squeeze limits memory. It hits a node if the programs of the node need more.
type squeeze struct {
	acting
	before map[string]cgroup.MemoryEvents // by node
	hit    map[string]bool                // nodes that it has hit since begin
}

func (k *squeeze) begin(_ context.Context, node string) (_ uint64, err error) {
	k.before[node], err = k.host.Squeeze(node, k.fault.Memory)
	k.hit[node] = false
	return 0, err
}

func (k *squeeze) count(node string, did *softswitch.FaultPlaceState) error {
	now, err := k.host.Squeeze(node, nil)
	if err != nil {
		return err
	}
	if now.Reached > k.before[node].Reached && !k.hit[node] {
		k.hit[node] = true
		did.Hit++
	}
	did.Killed = now.Killed - k.before[node].Killed
	k.before[node] = now
	return nil
}

func (k *squeeze) end(_ context.Context, node string) error {
	_, err := k.host.Squeeze(node, new(units.Bytes))
	return err
}

// Book has the faults of a testbed's nodes. It is safe for concurrent use. Its zero value is ready.
type Book struct {
	mu  sync.Mutex // held while a fault begins, ends or is counted
	all []*fault   // in the order in which they began
}

// fault is a fault that was added and not cleared.
type fault struct {
	state softswitch.FaultState
	kind  kind
	nodes []string // at which it is in force
}

// Add begins a fault. A fault of the same name and settings that is over, or that only signals programs or
// breaks queue pairs, begins again: its state then has the sums. If the fault cannot begin at a node, it ends
// at the others. The function that Add returns ends the fault, unless it is over. The fault then stays in the
// book.
func (b *Book) Add(ctx context.Context, p *plan.Plan, f spec.Fault, host Host) (
	end func(context.Context) error, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var of *fault
	if at := slices.IndexFunc(b.all, func(of *fault) bool { return of.state.Name == f.Name }); at >= 0 {
		of = b.all[at]
		if err := of.state.MayRepeat(&f); err != nil {
			return nil, fmt.Errorf("add fault %s: %w", f.Name, err)
		}
	} else {
		of = &fault{state: softswitch.FaultState{Fault: f, Places: []softswitch.FaultPlaceState{}}}
		of.kind = kindOf(acting{p, &of.state.Fault, host})
	}
	if err := of.begin(ctx, p); err != nil {
		return nil, fmt.Errorf("add fault %s: %w", f.Name, err)
	}
	if !slices.Contains(b.all, of) {
		b.all = append(b.all, of)
	}
	return func(ctx context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if of.state.Over {
			return nil
		}
		return of.end(ctx)
	}, nil
}

// begin begins the fault at its nodes.
func (f *fault) begin(ctx context.Context, p *plan.Plan) (err error) {
	for _, n := range p.Nodes {
		if !p.FaultNode(&f.state.Fault, n.Name) {
			continue
		}
		hit, err := f.kind.begin(ctx, n.Name)
		if err != nil {
			return errors.Join(err, f.end(ctx))
		}
		if !slices.Contains(f.nodes, n.Name) {
			f.nodes = append(f.nodes, n.Name)
		}
		f.state.Add(softswitch.FaultPlaceState{Port: n.Name, Matched: 1, Hit: hit})
	}
	f.state.Over = false
	return nil
}

// count adds what the fault did to its state.
func (f *fault) count() error {
	var failures []error
	for _, node := range f.nodes {
		did := softswitch.FaultPlaceState{Port: node}
		failures = append(failures, f.kind.count(node, &did))
		f.state.Add(did)
	}
	return errors.Join(failures...)
}

// end ends the fault where it is in force.
func (f *fault) end(ctx context.Context) error {
	failures := []error{f.count()}
	for _, node := range f.nodes {
		failures = append(failures, f.kind.end(ctx, node))
	}
	f.nodes, f.state.Over = nil, true
	return errors.Join(failures...)
}

// Has reports whether there is a fault of a name.
func (b *Book) Has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.all, func(f *fault) bool { return f.state.Name == name })
}

// Clear ends faults and removes them, by their names, or all without names. It returns what they did. Names
// of other faults are no error.
func (b *Book) Clear(ctx context.Context, names ...string) (ended []softswitch.FaultState, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	goes := func(f *fault) bool { return len(names) == 0 || slices.Contains(names, f.state.Name) }
	var failures []error
	for _, f := range b.all {
		if goes(f) {
			failures = append(failures, f.end(ctx))
			ended = append(ended, f.state)
		}
	}
	b.all = slices.DeleteFunc(b.all, goes)
	return ended, errors.Join(failures...)
}

// States returns the faults that were added and not cleared, in the order in which they began.
func (b *Book) States() (all []softswitch.FaultState, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failures []error
	for _, f := range b.all {
		failures = append(failures, f.count())
		s := f.state
		s.Places = slices.Clone(s.Places)
		all = append(all, s)
	}
	return all, errors.Join(failures...)
}
