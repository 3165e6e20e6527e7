package supervisor

import (
	"context"
	"fmt"
	"slices"

	"railbed/plan"
)

// slow changes the limit of a node's processor time.
func (s *supervisor) slow(_ context.Context, request SlowRequest) error {
	p, _ := s.running()
	at := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == request.Node })
	if at < 0 {
		return fmt.Errorf("slow node %q: %w", request.Node, ErrNoSuchObject)
	}
	if err := s.groups[at].SetCPU(request.CPU); err != nil {
		return fmt.Errorf("slow node %s: %w", request.Node, err)
	}
	what := "as the file says"
	if request.CPU > 0 {
		what = fmt.Sprintf("%g CPUs", request.CPU)
	}
	s.events.add("node.slow", request.Node, what)
	return nil
}
