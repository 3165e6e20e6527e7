package supervisor

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/usage"
	"railbed/plan"
	"railbed/plan/spec"
)

// countNodes adds to the nodes' states what the kernel counts of those whose stack and programs are on this
// host.
func (s *supervisor) countNodes(ctx context.Context, p *plan.Plan, states []NodeState) error {
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
	return kernel.Each(ctx, namespaces, 1, func(i int) error {
		n := counted[i]
		stack, err := usage.ReadStack()
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		used := programs[inode[n.Name]]
		n.Stack, n.Programs = &stack, &used
		return nil
	})
}
