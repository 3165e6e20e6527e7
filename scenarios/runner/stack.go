package runner

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/stacks"
)

// stackStep runs third-party programs.
type stackStep struct {
	stepFrame
	spec *spec.Stack
}

var _ = makes(func(_ *preparation, f stepFrame, a *spec.Stack) step { return &stackStep{f, a} })

func (k *stackStep) object() string { return k.Name }

func (k *stackStep) programs(p *plan.Plan) (names []string) {
	for _, n := range stackNodes(p, k.spec) {
		names = append(names, n.Name)
	}
	return names
}

func (k *stackStep) do(ctx context.Context, s *session) error {
	step := k.spec
	job := stacks.Job{Step: step, Plan: s.plan, Nodes: stackNodes(s.plan, step)}
	job.Log = func(node string) (io.Writer, io.Writer, error) {
		logs, err := s.openLogs(k.index, node, step.Name)
		if err != nil {
			return nil, nil, err
		}
		return logs.out, logs.err, nil
	}
	hidden := ""
	if len(step.Command) > 0 {
		var err error
		if job.Dir, hidden, err = s.folderOf(ctx, step.Name, k.programs(s.plan)); err != nil {
			return err
		}
	}
	ctx, done := s.withPatience(ctx, k.programs(s.plan))
	defer done()
	result, err := stacks.Run(ctx, s.testbed, job)
	if err != nil {
		err = s.explainStack(ctx, step.Command, k.programs(s.plan), err)
		if hidden != "" && strings.Contains(step.Command[0], "/") && !filepath.IsAbs(step.Command[0]) {
			err = fmt.Errorf("%w; the programs ran in /, because %s", err, hidden)
		}
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

// crossing returns the packets that a stack's run had to send, and the other steps that ran at the same time.
func crossing(e *judge.Evidence, p *plan.Plan, prepared []step, name string) (verify.Crossing, error) {
	i := slices.IndexFunc(e.Stacks, func(r stacks.Result) bool { return r.Name == name })
	if i < 0 {
		return verify.Crossing{}, fmt.Errorf("stack %s did not end, so its packets are not complete", name)
	}
	c := e.Stacks[i].Crossing
	own := slices.IndexFunc(prepared, func(s step) bool {
		return s.frame().key == "stack" && s.object() == name
	})
	for i, other := range prepared {
		if i == own || own < 0 || !together(e.Steps, i, own) {
			continue
		}
		switch s := other.(type) {
		case *trafficStep:
			c.Datagrams = append(c.Datagrams, s.port())
		case interface{ programs(*plan.Plan) []string }: // whose packets are unknown
			nodes := s.programs(p)
			if slices.ContainsFunc(c.Ranks, func(r verify.CrossingRank) bool {
				return slices.Contains(nodes, r.Node)
			}) {
				c.Beside = append(c.Beside, title(other))
			}
		default:
			if done := e.Workload(other.frame().Name); done != nil {
				c.Others = append(c.Others, done.Traffic)
			}
		}
	}
	return c, nil
}

// together reports whether two steps ran at the same time.
func together(steps []report.Step, i, j int) bool {
	if max(i, j) >= len(steps) {
		return false
	}
	a, b := &steps[i], &steps[j]
	return a.State != report.Skipped && b.State != report.Skipped && a.Start < b.End && b.Start < a.End
}
