package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/nodes/cgroup"
	"railbed/nodes/cni"
	"railbed/nodes/netns"
	"railbed/nodes/vm"
	"railbed/plan/spec"
)

// planCgroups decides the cgroups for the limits of each node. A virtual machine gets its memory
// when it is made, and an engine applies a container's limits.
func (s *supervisor) planCgroups() (err error) {
	s.groups = make([]*cgroup.Group, len(s.plan.Nodes))
	for i, n := range s.plan.Nodes {
		limits := cgroup.Limits{CPU: n.CPU, Memory: n.Memory, AdjustCPU: n.Slowed,
			AdjustMemory: n.Squeezed}
		if n.Runtime == spec.VM {
			limits.Memory = 0
		}
		if n.Container != nil {
			limits = cgroup.Limits{}
		}
		s.groups[i], err = cgroup.Plan(s.plan.Name, n.Name, limits)
		if err != nil {
			return fmt.Errorf("limit node %s: %w", n.Name, err)
		}
	}
	return nil
}

// creator returns the function that creates a node by its runtime and number. The function is safe
// for concurrent use.
func (s *supervisor) creator(nice int) func(ctx context.Context, from nodes.Runtime, i int) error {
	p := s.plan
	var lock sync.Mutex // guards s.nodes and booted
	booted, guests := 0, len(p.Guests())
	var trace func(string)
	if s.start.Trace {
		trace = s.startup.trace
	}
	return func(ctx context.Context, from nodes.Runtime, i int) error {
		n := p.Nodes[i]
		node, err := from.Create(ctx, nodes.Config{
			Testbed: p.Name, Node: n, Hosts: p.Hosts, Namespace: s.namespaces[n.Name], Cgroup: s.groups[i],
			Nice: nice, Dilation: p.Dilation, Trace: trace,
		})
		if err != nil {
			return s.placedSysctl(&placed{
				fmt.Errorf("create node %s: %w", n.Name, err), p.Containers[n.Name]})
		}
		lock.Lock()
		defer lock.Unlock()
		s.nodes[n.Name] = node
		if n.Runtime == spec.VM {
			booted++
			s.startup.progress("boot virtual machines", booted, guests)
		}
		return nil
	}
}

// createNodes makes the nodes in the namespaces that have their network. As many virtual machines
// boot at a time as there are cores.
func (s *supervisor) createNodes(ctx context.Context) error {
	p := s.plan
	if err := vm.Check(p.Nodes); err != nil {
		return err
	}
	nice := 0
	if s.start.Rootless && p.Soft() { // the switches' threads then have no real-time priority
		nice = reexec.ProgramNice
		s.sessions.Go(s.giveWay)
	}
	create := s.creator(nice)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	booting, ctx := errgroup.WithContext(ctx)
	booting.SetLimit(runtime.NumCPU())
	beginning, begin := errgroup.WithContext(ctx) // the container runtime has its own limit
	var err error
	for i, n := range p.Nodes {
		err = s.groups[i].Make()
		switch {
		case err != nil:
			err = fmt.Errorf("limit node %s: %w", n.Name, err)
		case n.Runtime == spec.VM:
			booting.Go(func() error { return create(ctx, &s.guests, i) })
		case n.Runtime == spec.CNI:
			err = create(ctx, cni.Runtime{}, i)
		case n.Container != nil:
			beginning.Go(func() error { return create(begin, s.engine, i) })
		default:
			err = create(ctx, netns.Runtime{}, i)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		cancel()
	}
	begun := beginning.Wait() // before the Wait of booting ends the context
	if begun != nil {
		cancel()
	}
	err = errors.Join(err, begun, booting.Wait()) // after the first error no further machine boots
	s.warnOfSlowGuests()
	return err
}

func (s *supervisor) warnOfSlowGuests() {
	if slow := s.guests.Slow(); slow != nil {
		s.warn(fmt.Sprintf("virtual machines run without KVM, with processors 10 to 20 times slower than "+
			"the host's: %v", slow))
	}
}

// warn sends a warning to the client and to the log.
func (s *supervisor) warn(text string) {
	s.log.Warn(text)
	s.startup.send(Startup{Kind: StartupWarning, Text: text})
}
