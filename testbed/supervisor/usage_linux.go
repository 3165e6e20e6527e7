package supervisor

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/usage"
	"railbed/plan"
	"railbed/plan/spec"
)

// countNodes adds to the nodes' states what the kernel counts of those whose stack and programs are on this
// host. Without stacks it leaves out the counters of stacks, which take half a millisecond for each node.
func (s *supervisor) countNodes(ctx context.Context, p *plan.Plan, states []NodeState, stacks bool) error {
	var counted []*NodeState
	var namespaces []*kernel.Namespace
	inodes := map[uint64]bool{}
	inode := map[string]uint64{} // by node
	for i := range states {
		n := &states[i]
		space := s.namespaces[n.Name]
		if space == nil || !s.hasStack(n.Name) || p.Node(n.Name).Runtime == spec.VM {
			continue
		}
		var facts unix.Stat_t
		if err := unix.Fstat(space.Fd(), &facts); err != nil {
			return fmt.Errorf("read the namespace of %s: %w", n.Name, err)
		}
		counted, namespaces = append(counted, n), append(namespaces, space)
		inodes[facts.Ino], inode[n.Name] = true, facts.Ino
	}
	programs, err := s.programs.Read(inodes)
	if err != nil {
		return err
	}
	for _, n := range counted {
		used := programs[inode[n.Name]]
		at := slices.IndexFunc(p.Nodes, func(of plan.Node) bool { return of.Name == n.Name })
		if used.Throttled, err = s.groups[at].Throttled(); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		n.Programs = &used
	}
	if !stacks {
		return nil
	}
	return kernel.Each(ctx, namespaces, 1, func(i int) error {
		stack, output, err := usage.ReadStack()
		if err != nil {
			return fmt.Errorf("%s: %w", counted[i].Name, err)
		}
		counted[i].Stack, counted[i].Output = &stack, &output
		return nil
	})
}

// countRouters adds to the switches' states the counts of the routers' stacks. Bridges forward below the
// stack, and soft switches have none.
func (s *supervisor) countRouters(ctx context.Context, p *plan.Plan, states []SwitchState) error {
	var counted []*SwitchState
	var namespaces []*kernel.Namespace
	for i := range states {
		space := s.namespaces[states[i].Name]
		if space != nil && p.Switch(states[i].Name).Kind == spec.Router {
			counted, namespaces = append(counted, &states[i]), append(namespaces, space)
		}
	}
	return kernel.Each(ctx, namespaces, 1, func(i int) error {
		stack, output, err := usage.ReadStack()
		if err != nil {
			return fmt.Errorf("%s: %w", counted[i].Name, err)
		}
		counted[i].Stack, counted[i].Output = &stack, &output
		return nil
	})
}
