package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"railbed/capture/verify"
	"railbed/testbed/plan"
	"railbed/testbed/spec"
	"railbed/testbed/verdict"
	"railbed/workloads/stacks"
)

// stack runs somebody else's programs.
func (s *session) stack(ctx context.Context, index int, step *spec.Stack) error {
	job := stacks.Job{Step: step, Plan: s.plan, Nodes: s.matching(step.Nodes)}
	if len(step.Nodes) == 0 {
		job.Nodes = slices.DeleteFunc(s.matching([]string{"*"}), func(n *plan.Node) bool { return n.Runtime == spec.CNI })
	}
	var opened []logPair
	job.Log = func(node string) (io.Writer, io.Writer, error) {
		logs, err := s.openLogs(node, step.Name)
		if err != nil {
			return nil, nil, err
		}
		opened = append(opened, logs)
		return logs.out, logs.err, nil
	}
	result, err := stacks.Run(ctx, s.testbed, job)
	for _, logs := range opened {
		err = errors.Join(err, s.closeLogs(index, logs))
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.stacks {
		if s.stacks[i].Name == step.Beside {
			result.Compare(&s.stacks[i].Stack)
		}
	}
	s.stacks = append(s.stacks, *result)
	return nil
}

// requireStacks asks the host for the programs of the file's stacks.
func (r *run) requireStacks(ctx context.Context) error {
	asked := map[string]bool{}
	for i, step := range r.File.Steps {
		if step.Stack == nil || asked[step.Stack.Kind] || r.inContainers(step.Stack) {
			continue
		}
		asked[step.Stack.Kind] = true
		_, err := stacks.Find(ctx, step.Stack.Kind)
		r.lacks(err, "stack "+step.Stack.Name, r.File.Source.Pos(fmt.Sprintf("steps[%d].stack.kind", i)).String())
		if err != nil {
			return err
		}
	}
	return nil
}

// inContainers reports whether a stack's programs are those of an image: its first
// node is a container.
func (r *run) inContainers(step *spec.Stack) bool {
	for i := range r.Plan.Nodes {
		n := &r.Plan.Nodes[i]
		if len(step.Nodes) == 0 || slices.ContainsFunc(step.Nodes, func(pattern string) bool { return spec.Match(pattern, n.Name) }) {
			return n.Container != nil
		}
	}
	return false
}

// crossing is what a stack's run had to send.
func (e *evidence) crossing(name string) (verify.Crossing, error) {
	i := slices.IndexFunc(e.stacks, func(r stacks.Result) bool { return r.Name == name })
	if i < 0 {
		return verify.Crossing{}, fmt.Errorf("stack %s did not come to its end", name)
	}
	return e.stacks[i].Crossing, nil
}

// notFound makes of a program that is not there what the host lacks.
func notFound(command, node string, err error) error {
	return &verdict.UnsupportedError{Feature: command, Reason: fmt.Sprintf("%s: %v", node, err), Remedy: "install the program, or its package, on this host"}
}
