package plan

import (
	"fmt"
	"slices"
	"strings"

	"railbed/testbed/spec"
)

// Taps that stand for several.
var tapWords = []string{"all", "nics", "switches"}

// checkSteps refuses steps and checks that name what does not exist: they would
// fail in the middle of a run, or check nothing.
func (c *compiler) checkSteps() {
	nodes, switches, links := c.names()
	for i, step := range c.t.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		if step.Capture != nil {
			for j, tap := range step.Capture.At {
				c.checkTap(fmt.Sprintf("%s.capture.at[%d]", path, j), tap, nodes, switches)
			}
		}
		if step.Stack != nil && step.Stack.Kind == spec.Perftest {
			c.checkDevices(path+".stack", step.Stack)
		}
		if step.Exec != nil && len(step.Exec.Ends) > 0 {
			c.checkEnds(path+".exec", step.Exec)
		}
		if step.Workload != nil && step.Workload.Switch != "" {
			c.checkName(path+".workload.switch", step.Workload.Switch, "switch", switches)
		}
		if step.Link != nil {
			name, _ := step.Link.Target()
			c.checkName(path+".link.where", name, "link", links)
		}
	}
	c.eachNodeOfSteps(func(path, name string, step *spec.Step) {
		ofSwitch := slices.ContainsFunc(switches, func(sw string) bool { return c.plan.ofSwitch(name, sw) })
		switch {
		case step.Exec == nil || !ofSwitch:
			c.checkName(path, name, "node", nodes)
		case c.t.Fabric.Routing == nil:
			c.wrong(path, "name nodes, or have fabric: {switch: {kind: router}, routing: {daemon: frr}}", "%q is a switch without daemons, in which no programs run", name)
		}
	})
	c.checkLinkSteps()
	for i, check := range c.t.Checks {
		if check.Packets == nil {
			continue
		}
		path := fmt.Sprintf("checks[%d].packets", i)
		if name := check.Packets.Conservation; name != "" {
			c.checkName(path+".conservation", name, "switch", switches)
		}
		if spread := check.Packets.PathSpread; spread != nil {
			c.checkName(path+".path-spread.switch", spread.Switch, "switch", switches)
		}
		c.checkSelected(path, check.Packets, nodes, switches)
	}
}

// checkDevices refuses a benchmark of RDMA in nodes without a device.
func (c *compiler) checkDevices(path string, s *spec.Stack) {
	for i := range c.plan.Nodes {
		name := c.plan.Nodes[i].Name
		meant := len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(pattern string) bool { return spec.Match(pattern, name) })
		if meant && c.plan.Nodes[i].RDMA == "" {
			c.wrong(path+".kind", "want nodes: {default: {runtime: vm, rdma: rxe}}, or railbed rdma as a command, which needs no device", "%s in %s, which has no RDMA device", s.Kind, name)
			return
		}
	}
}

// eachNodeOfSteps calls look with the path of each name, or pattern, of nodes that steps
// start programs in, and with the step.
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

// checkSelected refuses ports and nodes that do not exist, in checks that take
// either.
func (c *compiler) checkSelected(path string, p *spec.PacketsCheck, nodes, switches []string) {
	at := func(key, name string) {
		if name != "" {
			c.checkTap(path+"."+key, name, nodes, switches)
		}
	}
	ends := func(key, from, to string) {
		if from != "" {
			c.checkName(path+"."+key+".from", from, "node", nodes)
		}
		if to != "" {
			c.checkName(path+"."+key+".to", to, "node", nodes)
		}
	}
	if k := p.Marks; k != nil {
		at("marks.at", k.At)
		ends("marks", k.From, k.To)
	}
	if k := p.Drops; k != nil {
		at("drops.at", k.At)
		ends("drops", k.From, k.To)
	}
	if k := p.Lossless; k != nil {
		ends("lossless", k.From, k.To)
	}
	if k := p.Trims; k != nil {
		at("trims.at", k.At)
	}
	if k := p.Pauses; k != nil {
		at("pauses.at", k.At)
		for i, port := range k.Order {
			at(fmt.Sprintf("pauses.order[%d]", i), port)
		}
	}
	if k := p.Reordering; k != nil {
		ends("reordering", k.From, k.To)
	}
	if k := p.Outage; k != nil {
		ends("outage", k.From, k.To)
	}
	if k := p.QueueDepth; k != nil {
		at("queue-depth.at", k.At)
	}
}

// names are the names of everything that the plan has.
func (c *compiler) names() (nodes, switches, links []string) {
	for i := range c.plan.Nodes {
		nodes = append(nodes, c.plan.Nodes[i].Name)
	}
	for i := range c.plan.Switches {
		switches = append(switches, c.plan.Switches[i].Name)
	}
	for i := range c.plan.Links {
		links = append(links, c.plan.Links[i].Name)
	}
	return nodes, switches, links
}

// checkName refuses a name or pattern that stands for none of the names.
func (c *compiler) checkName(path, name, kind string, names []string) {
	if !slices.ContainsFunc(names, func(n string) bool { return spec.Match(name, n) }) {
		c.wrong(path, c.wantName(name, kind, names), "%q is no %s", name, kind)
	}
}

// wantName says what would be right in place of a name that does not exist.
func (c *compiler) wantName(name, kind string, names []string) string {
	if len(names) == 0 {
		return "there is none in this testbed"
	}
	return suggest(name, names, fmt.Sprintf("want the name of a %s or a pattern that matches one, such as %q", kind, names[0]))
}

func (c *compiler) checkTap(path, tap string, nodes, switches []string) {
	names := slices.Concat(tapWords, nodes, switches)
	if !strings.Contains(tap, ":") {
		if !slices.ContainsFunc(names, func(n string) bool { return spec.Match(tap, n) }) {
			c.wrong(path, suggest(tap, names, `want "all", "nics", "switches", a node, a switch or node:port`), "%q is no tap", tap)
		}
		return
	}
	var ports []string
	for _, l := range c.plan.Links {
		ports = append(ports, l.A.Node+":"+l.A.Port, l.B.Node+":"+l.B.Port)
	}
	if !slices.ContainsFunc(ports, func(n string) bool { return spec.Match(tap, n) }) {
		c.wrong(path, suggest(tap, ports, fmt.Sprintf("want node:port, such as %q", ports[0])), "%q is no tap", tap)
	}
}
