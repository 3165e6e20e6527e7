package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/plural"
	"railbed/plan/spec"
	"railbed/plan/topology"
)

func (c *compiler) addNodes() {
	c.nodeAt = make(map[string]int, len(c.graph.Hosts))
	ordinal := 0
	for i, host := range c.graph.Hosts {
		c.nodeAt[host.Name] = i
		settings := c.t.NodeFor(host.Name)
		if settings.NICs != 0 && settings.NICs != len(host.Ports) {
			path := c.nodeSetting(host.Name, "nics", func(n spec.Node) bool { return n.NICs != 0 })
			want := fmt.Sprintf("want nics: %d, the number of its links", len(host.Ports))
			if c.t.Fabric.Topology == spec.Explicit {
				want += ", or more entries of fabric.connect"
			}
			c.wrong(path, want, "node %s has %s and %s", host.Name, plural.Count(settings.NICs, "NICs"),
				plural.Count(len(host.Ports), "links"))
		}
		if len(host.Ports) == 0 {
			c.wrong(fmt.Sprintf("fabric.hosts[%d]", i),
				fmt.Sprintf("want an entry of fabric.connect such as %q", host.Name+" -- SWITCH"),
				"node %s has no link", host.Name)
		}
		c.checkGuest(host.Name, settings)
		c.checkCNI(host.Name, &settings)
		c.checkDocker(host.Name, settings)
		node := Node{
			Name: host.Name, Runtime: settings.Runtime, MachineID: c.machineID(host.Name),
			Sysctls: maps.Clone(settings.Sysctls),
			Env:     maps.Clone(settings.Env),
			CPU:     settings.CPU,
			Memory:  settings.Memory,
			Modules: slices.Clone(settings.Modules),
		}
		c.placeSysctls(host.Name, settings.Sysctls)
		if settings.Runtime == spec.Docker {
			container := settings.Container
			node.Container = &container
		}
		if settings.RDMA != spec.NoRDMA {
			node.RDMA = settings.RDMA
		}
		for _, name := range host.Ports {
			ordinal++
			node.NICs = append(node.NICs, Interface{Name: name, MAC: macOf(ordinal)})
		}
		c.plan.Nodes = append(c.plan.Nodes, node)
	}
}

func (c *compiler) addSwitches() {
	c.switchAt = make(map[string]int, len(c.graph.Switches))
	ordinal := 0
	for _, host := range c.graph.Hosts {
		ordinal += len(host.Ports)
	}
	for i, sw := range c.graph.Switches {
		c.switchAt[sw.Name] = i
		settings := c.t.Fabric.SwitchFor(sw.Name)
		c.settings = append(c.settings, settings)
		planned := Switch{
			Name: sw.Name, Kind: settings.Kind, Tier: sw.Tier, Role: sw.Role, Group: sw.Group, At: sw.At,
			HashSeed: c.hashSeed(sw.Name),
		}
		if settings.Kind == spec.Soft {
			planned.ID, planned.Forwarding = uint32(i+1), settings.Forwarding
			if settings.LoadBalance == spec.Polarised {
				planned.HashSeed = c.hashSeed("") // no switch has the empty name
			}
		}
		planned.Ports = make([]Interface, 0, len(sw.Ports))
		for _, name := range sw.Ports {
			ordinal++
			planned.Ports = append(planned.Ports, Interface{Name: name, MAC: macOf(ordinal)})
		}
		c.plan.Switches = append(c.plan.Switches, planned)
	}
}

// addLinks adds the links and names them in the interfaces at their ends.
func (c *compiler) addLinks() {
	nextNIC, nextPort := make([]int, len(c.graph.Hosts)), make([]int, len(c.graph.Switches))
	resolve := func(e topology.End) endpoint {
		if node, isNode := c.nodeAt[e.Node]; isNode {
			return endpoint{false, node, takePort(c.graph.Hosts[node].Ports, e.Port, &nextNIC[node])}
		}
		sw := c.switchAt[e.Node]
		return endpoint{true, sw, takePort(c.graph.Switches[sw].Ports, e.Port, &nextPort[sw])}
	}
	c.ports = make([][]port, len(c.graph.Switches))
	for i, sw := range c.graph.Switches {
		c.ports[i] = make([]port, len(sw.Ports))
	}
	c.attached = make([][]int, len(c.graph.Hosts))
	for i, host := range c.graph.Hosts {
		c.attached[i] = make([]int, len(host.Ports))
	}
	c.plan.Links, c.wires = make([]Link, 0, len(c.graph.Links)), make([]wire, len(c.graph.Links))
	between := make(map[[2]int]int, len(c.graph.Links))
	for i, l := range c.graph.Links {
		c.wires[i] = wire{resolve(l.A), resolve(l.B)}
		between[c.wires[i].devices()]++
	}
	for i, l := range c.graph.Links {
		a, b := c.wires[i].a, c.wires[i].b
		c.ports[b.index][b.iface] = port{i, a}
		class := spec.HostLink
		if a.isSwitch {
			c.ports[a.index][a.iface] = port{i, b}
			class = spec.FabricLink
		} else {
			c.attached[a.index][a.iface] = b.index
		}
		name := l.A.Node + "--" + l.B.Node
		if between[c.wires[i].devices()] > 1 {
			name = fmt.Sprintf("%s:%s--%s:%s", l.A.Node, l.A.Port, l.B.Node, l.B.Port)
		}
		c.addLink(Link{Name: name, Class: class, A: End{l.A.Node, l.A.Port}, B: End{l.B.Node, l.B.Port}},
			c.wires[i])
	}
}

// takePort returns the index of a port among its device's ports. Links mostly take the ports of a
// device in order.
func takePort(ports []string, name string, next *int) int {
	at := *next
	if at >= len(ports) || ports[at] != name {
		at = slices.Index(ports, name)
	}
	*next = at + 1
	return at
}

// devices returns the two devices of a link in a form that does not depend on which end is which.
// Nodes count down from -1.
func (w wire) devices() [2]int {
	number := func(e endpoint) int {
		if e.isSwitch {
			return e.index
		}
		return -1 - e.index
	}
	a, b := number(w.a), number(w.b)
	return [2]int{min(a, b), max(a, b)}
}

// addLink adds one link with its settings.
func (c *compiler) addLink(l Link, w wire) {
	settings := c.t.Fabric.LinkFor(l.Name, l.Class)
	l.MTU = settings.MTU
	l.Weight = settings.Weight
	if l.Weight == 1 {
		l.Weight = 0
	}
	l.AToB = c.direction(*settings.AToB, l.MTU, w.a, w.b)
	l.BToA = c.direction(*settings.BToA, l.MTU, w.b, w.a)
	c.checkDirections(l)
	c.plan.Links = append(c.plan.Links, l)
	for _, side := range [2]struct {
		at   endpoint
		peer End
	}{{w.a, l.B}, {w.b, l.A}} {
		iface := c.iface(side.at)
		iface.Link, iface.MTU, iface.Peer = l.Name, l.MTU, side.peer.Node+":"+side.peer.Port
	}
}

// iface returns the interface at an end of a wire.
func (c *compiler) iface(e endpoint) *Interface {
	if e.isSwitch {
		return &c.plan.Switches[e.index].Ports[e.iface]
	}
	return &c.plan.Nodes[e.index].NICs[e.iface]
}

// SysctlKey returns the key of a sysctl in Plan.Sysctls. The path has dots or slashes.
func SysctlKey(path, value string) string { return strings.ReplaceAll(path, "/", ".") + "=" + value }

// placeSysctls records where the file sets the sysctls of a node. Only the kernel knows whether the
// values are valid.
func (c *compiler) placeSysctls(name string, sysctls map[string]string) {
	for key, value := range sysctls {
		at := SysctlKey(key, value)
		if c.plan.Sysctls == nil {
			c.plan.Sysctls = map[string]string{}
		}
		path := c.sysctlAt(name, key)
		if _, known := c.plan.Sysctls[at]; !known {
			c.plan.Sysctls[at] = c.t.Source.Pos(path).String()
		}
	}
}
