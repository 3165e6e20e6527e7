package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/stacks"
)

// stack runs third-party programs.
func (s *session) stack(ctx context.Context, index int, step *spec.Stack) error {
	job := stacks.Job{Step: step, Plan: s.plan, Nodes: stackNodes(s.plan, step)}
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

// stackNodes returns the nodes in which a stack runs.
func stackNodes(p *plan.Plan, step *spec.Stack) []*plan.Node {
	if len(step.Nodes) > 0 {
		return matching(p, step.Nodes)
	}
	return slices.DeleteFunc(matching(p, []string{"*"}), func(n *plan.Node) bool {
		return n.Runtime == spec.CNI
	})
}

// requireStacks checks that the host has the programs of the file's stacks.
func (r *run) requireStacks(ctx context.Context) error {
	asked := map[string]bool{}
	for i, step := range r.File.Steps {
		if step.Stack == nil || asked[step.Stack.Kind] || r.inContainers(step.Stack) {
			continue
		}
		asked[step.Stack.Kind] = true
		_, err := stacks.Find(ctx, step.Stack.Kind)
		r.lacks(err, "stack "+step.Stack.Name,
			r.File.Source.Pos(fmt.Sprintf("steps[%d].stack.kind", i)).String())
		if err != nil {
			return err
		}
	}
	return nil
}

// inContainers reports whether a stack's programs come from a container image: its first node is a
// container.
func (r *run) inContainers(step *spec.Stack) bool {
	for i := range r.Plan.Nodes {
		n := &r.Plan.Nodes[i]
		if len(step.Nodes) == 0 || slices.ContainsFunc(step.Nodes, func(pattern string) bool {
			return spec.Match(pattern, n.Name)
		}) {
			return n.Container != nil
		}
	}
	return false
}

// crossing returns the packets that a stack's run had to send, and the other steps that ran at the
// same time.
func (e *evidence) crossing(name string, file *spec.Testbed, p *plan.Plan) (verify.Crossing, error) {
	i := slices.IndexFunc(e.stacks, func(r stacks.Result) bool { return r.Name == name })
	if i < 0 {
		return verify.Crossing{}, fmt.Errorf("stack %s did not come to its end", name)
	}
	c := e.stacks[i].Crossing
	own := slices.IndexFunc(file.Steps, func(s spec.Step) bool {
		return s.Stack != nil && s.Stack.Name == name
	})
	traffics := uint16(0)
	for i, step := range file.Steps {
		port := sinkPort + traffics
		if step.Traffic != nil {
			traffics++
		}
		if i == own || own < 0 || !e.together(i, own) {
			continue
		}
		var nodes []string // in which programs ran whose packets are unknown
		switch {
		case step.Traffic != nil:
			c.Datagrams = append(c.Datagrams, port)
		case step.Workload != nil:
			c.Others = append(c.Others, e.traffic(step.Workload.Name)...)
		case step.Training != nil:
			c.Others = append(c.Others, e.traffic(step.Training.Name)...)
		case step.Messages != nil:
			c.Others = append(c.Others, e.traffic(step.Messages.Name)...)
		case step.Stack != nil:
			for _, n := range stackNodes(p, step.Stack) {
				nodes = append(nodes, n.Name)
			}
		case step.Exec != nil:
			nodes = p.ExecNodes(step.Exec.Nodes)
		}
		if slices.ContainsFunc(c.Ranks, func(r verify.CrossingRank) bool {
			return slices.Contains(nodes, r.Node)
		}) {
			c.Beside = append(c.Beside, stepName(step))
		}
	}
	return c, nil
}

// traffic returns the traffic of a workload that ran to its end, or nil.
func (e *evidence) traffic(name string) []verify.Workload {
	if done := e.workload(name); done != nil {
		return []verify.Workload{done.traffic}
	}
	return nil
}

// together reports whether two steps ran at the same time.
func (e *evidence) together(i, j int) bool {
	if max(i, j) >= len(e.steps) {
		return false
	}
	a, b := &e.steps[i], &e.steps[j]
	return a.State != report.Skipped && b.State != report.Skipped && a.Start < b.End && b.Start < a.End
}

// notFound returns an UnsupportedError for a program that does not exist.
func notFound(command, node string, err error) error {
	return &verdict.UnsupportedError{Feature: command, Reason: fmt.Sprintf("%s: %v", node, err),
		Remedy: "install the program, or its package, on this host"}
}
