package supervisor

import (
	"context"
	"fmt"
	"slices"

	"railbed/nodes/cgroup"
	"railbed/plan"
)

// groupOf returns the control group of a node.
func (s *supervisor) groupOf(node string) (*cgroup.Group, error) {
	p, _ := s.running()
	at := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == node })
	if at < 0 {
		return nil, fmt.Errorf("node %q: %w", node, ErrNoSuchObject)
	}
	return s.groups[at], nil
}

// slow changes the limit of a node's processor time.
func (s *supervisor) slow(_ context.Context, request SlowRequest) error {
	group, err := s.groupOf(request.Node)
	if err == nil {
		err = group.SetCPU(request.CPU)
	}
	if err != nil {
		return fmt.Errorf("slow node %s: %w", request.Node, err)
	}
	what := asTheFile
	if request.CPU > 0 {
		what = fmt.Sprintf("%g CPUs", request.CPU)
	}
	s.events.add("node.slow", request.Node, what)
	return nil
}

// asTheFile is the detail of events that end a limit.
const asTheFile = "as the file says"

// limitMemory changes the limit of a node's memory. It returns what limits did before the change.
func (s *supervisor) limitMemory(_ context.Context, request MemoryRequest) (cgroup.MemoryEvents, error) {
	var before cgroup.MemoryEvents
	group, err := s.groupOf(request.Node)
	if err == nil {
		before, err = group.MemoryEvents()
	}
	if err == nil && request.Limit != nil {
		err = group.SetMemory(*request.Limit)
	}
	if err != nil {
		return before, fmt.Errorf("limit the memory of %s: %w", request.Node, err)
	}
	if request.Limit != nil {
		what := asTheFile
		if *request.Limit > 0 {
			what = request.Limit.String()
		}
		s.events.add("node.memory", request.Node, what)
	}
	return before, nil
}
