package plan

import "railbed/plan/spec"

// checkNodeFault reports the nodes that cannot have a fault of nodes. It notes the nodes whose processor time
// or memory the fault limits.
func (c *compiler) checkNodeFault(path string, f *spec.Fault) {
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		if !c.plan.FaultNode(f, n.Name) {
			continue
		}
		n.Slowed = n.Slowed || f.Slow != nil
		n.Squeezed = n.Squeezed || f.Memory != nil
		if reason := refusal(f, n); reason != "" {
			want := "want nodes of another runtime"
			if f.Clock != nil {
				want = "want nodes with runtime: vm"
			}
			c.wrong(path+".where", want, "%s %s", n.Name, reason)
		}
		if f.Memory != nil && n.Memory > 0 && *f.Memory >= n.Memory {
			c.wrong(path+".memory", "want less", "%s never has more than %s", n.Name, n.Memory)
		}
	}
}

// refusal returns why a node cannot have a fault, or "".
func refusal(f *spec.Fault, n *Node) string {
	limits := f.Slow != nil || f.Memory != nil
	switch {
	case n.Runtime == spec.CNI:
		return "has no programs of its own: its containers are of another runtime"
	case limits && n.Container != nil:
		return "is a container, whose engine limits its processor time and memory"
	case f.Disk != "" && n.Container != nil:
		return "is a container, whose files are its engine's"
	case f.Clock != nil && n.Runtime != spec.VM:
		return "has the host's wall clock, as time namespaces shift only monotonic clocks"
	case f.Memory != nil && n.Runtime == spec.VM:
		return "is a virtual machine, whose kernel has all of its memory"
	}
	return ""
}
