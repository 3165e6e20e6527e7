package plan

import (
	"fmt"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// minContainerMemory is the smallest limit of a container, whose first process needs 14 MiB.
const minContainerMemory = units.Bytes(32 << 20)

// checkNodeFault reports the nodes that cannot have a fault of nodes. It notes the nodes whose control group
// the fault changes. The memory of a virtual machine is limited inside.
func (c *compiler) checkNodeFault(path string, f *spec.Fault) {
	for i := range c.plan.Nodes {
		if n := &c.plan.Nodes[i]; n.Container == nil && c.plan.FaultNode(f, n.Name) {
			n.Slowed = n.Slowed || f.Slow != nil
			n.Squeezed = n.Squeezed || f.Memory != nil && n.Runtime != spec.VM
		}
	}
	for _, p := range c.plan.nodeProblems(f) {
		c.wrong(path+"."+p.key, p.want, "%s", p.what)
	}
}

// nodeProblems returns why nodes of the plan cannot have a fault of nodes.
func (p *Plan) nodeProblems(f *spec.Fault) (problems []faultProblem) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !p.FaultNode(f, n.Name) {
			continue
		}
		if reason := refusal(f, n); reason != "" {
			want := "want nodes of another runtime"
			if f.Clock != nil {
				want = "want nodes with runtime: vm"
			}
			problems = append(problems, faultProblem{"where", n.Name + " " + reason, want})
		}
		if f.Memory != nil && n.Container != nil && *f.Memory < minContainerMemory {
			problems = append(problems, faultProblem{"memory",
				fmt.Sprintf("%s is a container, whose first process needs 14MiB of its memory", n.Name),
				"want at least " + minContainerMemory.String()})
		}
		most := n.Memory
		if n.Runtime == spec.VM {
			most = n.Guest().Memory
		}
		if f.Memory != nil && most > 0 && *f.Memory >= most {
			problems = append(problems, faultProblem{"memory",
				fmt.Sprintf("%s never has more than %s", n.Name, most), "want less"})
		}
	}
	return problems
}

// noNode returns the problem of a fault of nodes that no node has, or nothing.
func (p *Plan) noNode(f *spec.Fault) []faultProblem {
	for i := range p.Nodes {
		if p.FaultNode(f, p.Nodes[i].Name) {
			return nil
		}
	}
	what := fmt.Sprintf("no node is at %q", f.Where)
	if f.Rank != nil {
		what = fmt.Sprintf("there is no rank %d", *f.Rank)
		if f.Where != "" {
			what += fmt.Sprintf(" at %q", f.Where)
		}
		return []faultProblem{{"rank", what, fmt.Sprintf("the testbed has %d ranks", len(p.Ranks))}}
	}
	return []faultProblem{{"where", what, "want the name of a node, or a glob, such as " + p.anyNode()}}
}

// refusal returns why a node cannot have a fault, or "".
func refusal(f *spec.Fault, n *Node) string {
	switch {
	case n.Runtime == spec.CNI:
		return "has no programs of its own: its containers are of another runtime"
	case f.Disk != "" && n.Container != nil:
		return "is a container, whose files are its engine's"
	case f.Clock != nil && n.Runtime != spec.VM:
		return "has the host's wall clock, as time namespaces shift only monotonic clocks"
	}
	return ""
}
