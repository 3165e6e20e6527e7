package plan

import (
	"fmt"
	"slices"

	"railbed/plan/spec"
)

// checkSteps reports steps and checks that name something that does not exist. They would fail in
// the middle of a run, or check nothing.
func (c *compiler) checkSteps() {
	w := c.words()
	defer func() { c.problems = append(c.problems, w.problems...) }()
	for i, step := range c.t.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		if step.Capture != nil {
			for j, tap := range step.Capture.At {
				w.tap(fmt.Sprintf("%s.capture.at[%d]", path, j), tap)
			}
		}
		if step.Stack != nil && step.Stack.Kind == spec.Perftest {
			c.checkDevices(path+".stack", step.Stack)
		}
		if step.Exec != nil && len(step.Exec.Ends) > 0 {
			c.checkEnds(path+".exec", step.Exec)
		}
		if step.Probe != nil {
			c.checkProbe(path+".probe", step.Probe)
		}
		if step.Workload != nil && step.Workload.Switch != "" {
			w.name(path+".workload.switch", step.Workload.Switch, "switch", w.switches)
		}
		if step.Link != nil {
			name, _ := step.Link.Target()
			w.name(path+".link.where", name, "link", w.links)
		}
		if step.Fault != nil {
			c.checkFault(path+".fault", step.Fault)
		}
	}
	c.eachNodeOfSteps(func(path, name string, step *spec.Step) {
		ofSwitch := slices.ContainsFunc(w.switches, func(sw string) bool { return c.plan.ofSwitch(name, sw) })
		switch {
		case step.Exec == nil || !ofSwitch:
			w.name(path, name, "node", w.nodes)
		case c.t.Fabric.Routing == nil:
			c.wrong(path, "name nodes, or set fabric: {switch: {kind: router}, routing: {daemon: frr}}",
				"%q is a switch without daemons, in which no programs run", name)
		}
	})
	c.checkLinkSteps()
	for i, check := range c.t.Checks {
		if check.Packets != nil {
			w.check(fmt.Sprintf("checks[%d].packets", i), check.Packets)
		}
	}
}

// checkDevices reports a benchmark of RDMA in nodes without an RDMA device.
func (c *compiler) checkDevices(path string, s *spec.Stack) {
	for i := range c.plan.Nodes {
		name := c.plan.Nodes[i].Name
		meant := len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(pattern string) bool {
			return spec.Match(pattern, name)
		})
		if meant && c.plan.Nodes[i].RDMA == "" {
			c.wrong(path+".kind", "want nodes: {default: {runtime: vm, rdma: rxe}}, or railbed rdma as a "+
				"command, which needs no device", "%s in %s, which has no RDMA device", s.Kind, name)
			return
		}
	}
}

// eachNodeOfSteps calls look for each name, or pattern, of nodes in which steps start programs. It
// passes the path of the name and the step.
func (c *compiler) eachNodeOfSteps(look func(path, name string, step *spec.Step)) {
	for i, step := range c.t.Steps {
		all := func(key string, names []string) {
			for j, name := range names {
				look(fmt.Sprintf("steps[%d].%s[%d]", i, key, j), name, &step)
			}
		}
		if step.Stack != nil {
			all("stack.nodes", step.Stack.Nodes)
		}
		if step.Exec != nil {
			all("exec.nodes", step.Exec.Nodes)
		}
		if step.Traffic != nil {
			all("traffic.from", step.Traffic.From)
			all("traffic.to", step.Traffic.To)
		}
	}
}
