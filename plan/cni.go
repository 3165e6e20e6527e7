package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"railbed/plan/spec"
)

// CNINodes returns the nodes that a container runtime attaches (runtime: cni).
func (p *Plan) CNINodes() (all []*Node) {
	for i := range p.Nodes {
		if p.Nodes[i].Runtime == spec.CNI {
			all = append(all, &p.Nodes[i])
		}
	}
	return all
}

// checkCNI reports settings of a cni node whose programs and limits belong to an external container
// runtime. It removes those that the file sets for all nodes.
func (c *compiler) checkCNI(name string, settings *spec.Node) {
	if settings.Runtime != spec.CNI {
		return
	}
	for _, f := range []setting[spec.Node]{
		{"ranks", func(n spec.Node) bool { return n.Ranks > 0 }},
		{"cpu", func(n spec.Node) bool { return n.CPU > 0 }},
		{"memory", func(n spec.Node) bool { return n.Memory > 0 }},
		{"env", func(n spec.Node) bool { return len(n.Env) > 0 }},
		{"rdma", func(n spec.Node) bool { return n.RDMA == spec.RXE }},
	} {
		if path := c.nodeSetting(name, f.key, f.has); f.has(*settings) && path != "nodes" &&
			path != `nodes["default"].`+f.key {
			c.once(path, "remove "+f.key, "%s applies only to programs that Railbed starts, and it "+
				"starts none in %s (runtime: cni)", f.key, name)
		}
	}
	settings.Ranks, settings.CPU, settings.Memory, settings.Env, settings.RDMA = 0, 0, 0, nil, spec.NoRDMA
}

// checkCNINodes reports cni nodes at kernel switches, and steps that would start programs in cni
// nodes.
func (c *compiler) checkCNINodes() {
	var names []string
	for _, n := range c.plan.CNINodes() {
		names = append(names, n.Name)
		if !c.plan.Soft() {
			path := c.nodeSetting(n.Name, "runtime", func(n spec.Node) bool { return n.Runtime != "" })
			c.once(path, "use soft switches (kind: soft)",
				"node %s has runtime: cni, whose port is a file descriptor, which kernel switches "+
					"cannot use", n.Name)
		}
	}
	if names == nil {
		return
	}
	for i := range c.t.Steps {
		for _, n := range c.t.Steps[i].Names() {
			at := slices.IndexFunc(names, func(name string) bool { return spec.Match(n.Text, name) })
			if at >= 0 && (n.Kind == spec.NamesNode || n.Kind == spec.NamesHost) {
				c.wrong(fmt.Sprintf("steps[%d].%s", i, n.Path), "name nodes of other runtimes, or start the "+
					"program with the container's own runtime",
					"%s has runtime: cni, so Railbed starts no programs in it", names[at])
			}
		}
	}
}

// Cover returns one prefix per address family that contains all addresses of NICs and switches'
// ports.
func (p *Plan) Cover() (prefixes []netip.Prefix) {
	add := func(one netip.Prefix) {
		for i, have := range prefixes {
			if have.Addr().Is4() == one.Addr().Is4() {
				for !have.Contains(one.Addr()) {
					have = netip.PrefixFrom(have.Addr(), have.Bits()-1).Masked()
				}
				prefixes[i] = have
				return
			}
		}
		prefixes = append(prefixes, one.Masked())
	}
	each := func(interfaces []Interface) {
		for i := range interfaces {
			for _, address := range interfaces[i].Addrs {
				add(address)
			}
		}
	}
	for i := range p.Nodes {
		each(p.Nodes[i].NICs)
	}
	for i := range p.Switches {
		each(p.Switches[i].Ports)
	}
	return prefixes
}
