package plan

import (
	"fmt"
	"slices"
	"strings"

	"railbed/plan/spec"
)

// maxPermanent is the largest number of NICs in a shared subnet that get permanent neighbour
// entries for each other in the plan. The number of entries grows with its square. Above it, the
// fabric makes the permanent entries when nodes need them. A node whose kernel is not the host's
// then uses ARP and neighbour discovery.
const maxPermanent = 16

// maxBridgePorts is the limit of the Linux bridge. Its port numbers have ten bits, and 0 is no port
// (BR_PORT_BITS).
const maxBridgePorts = 1<<10 - 1

// checkKinds reports fabrics whose switches cannot work together:
//
//   - a loop of bridges, in which a broadcast would circulate for ever;
//   - bridges together with routers, because a shared subnet would have several gateways and no
//     single rule for which of them a node uses;
//   - soft switches together with the kernel's switches, because their ports are of different kinds
//     and cannot be linked.
func (c *compiler) checkKinds() {
	for i := range c.plan.Switches {
		sw, first := &c.plan.Switches[i], &c.plan.Switches[0]
		if sw.Kind != first.Kind {
			c.wrong(c.switchKind(sw.Name), "want one kind for all switches", "switch %s is a %s and %s a %s",
				sw.Name, called(sw.Kind), first.Name, called(first.Kind))
			return
		}
		if sw.Forwarding != first.Forwarding {
			path := c.switchSetting(sw.Name, "forwarding", func(s spec.Switch) bool {
				return s.Forwarding != ""
			})
			c.wrong(path, "want one forwarding for all switches", "switch %s forwards by %s and %s by %s",
				sw.Name, sw.Forwarding, first.Name, first.Forwarding)
			return
		}
	}
	if !c.bridged() {
		return
	}
	for _, sw := range c.plan.Switches {
		if sw.Kind == spec.Bridge && len(sw.Ports) > maxBridgePorts {
			c.wrong(c.switchKind(sw.Name),
				fmt.Sprintf("want kind: router, or at most %d ports on each switch", maxBridgePorts),
				"bridge %s has %d ports", sw.Name, len(sw.Ports))
			return
		}
	}
	if cycle := c.cycle(); len(cycle) > 0 {
		path, what := c.switchKind(cycle[0]), "bridges"
		if c.plan.Soft() {
			path = c.switchSetting(cycle[0], "forwarding", func(s spec.Switch) bool {
				return s.Forwarding != ""
			})
			what = "switches that forward by l2"
		}
		c.wrong(path, fmt.Sprintf("want %s, or links that form a tree", c.routing()), "%s form a loop: %s",
			what, strings.Join(append(cycle, cycle[0]), " -- "))
	}
	for _, l := range c.plan.Links {
		if first := c.plan.Links[0]; l.MTU != first.MTU {
			path := c.linkMTU(l)
			if c.linkMTU(first) != "fabric.links" && path == "fabric.links" {
				path = c.linkMTU(first)
			}
			c.wrong(path, "want one MTU for all links: a bridge silently drops packets that are too long",
				"link %s has mtu %d and %s has %d, in one bridged network", l.Name, l.MTU, first.Name,
				first.MTU)
			return
		}
	}
}

// bridged reports whether the switches are bridges. It returns false if there are no switches.
func (c *compiler) bridged() bool {
	return len(c.plan.Switches) > 0 && c.plan.Switches[0].Bridged()
}

// routing returns the setting that turns bridged switches into routers.
func (c *compiler) routing() string {
	if c.plan.Soft() {
		return "forwarding: l3"
	}
	return "kind: router"
}

// called returns the name of a kind of switch for messages.
func called(kind string) string {
	if kind == spec.Soft {
		return "soft switch"
	}
	return kind
}

// cycle returns the names of switches in a loop of links, or nil. It is the first loop that a
// breadth-first search finds.
func (c *compiler) cycle() []string {
	parent := make([]int, len(c.ports)) // the link to the parent, or -1 for a root
	depth := make([]int, len(c.ports))
	for i := range depth {
		depth[i] = unreachable
	}
	for root := range c.ports {
		if depth[root] != unreachable {
			continue
		}
		depth[root], parent[root] = 0, -1
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			from := queue[0]
			for _, p := range c.ports[from] {
				to := p.peer.index
				switch {
				case !p.peer.isSwitch || p.link == parent[from]:
				case depth[to] == unreachable:
					depth[to], parent[to] = depth[from]+1, p.link
					queue = append(queue, to)
				default:
					return c.around(from, to, parent, depth)
				}
			}
		}
	}
	return nil
}

// around returns the names of the switches of a loop, from one end of the closing link to the other
// through their common ancestor.
func (c *compiler) around(from, to int, parent, depth []int) []string {
	up := func(sw int) int {
		w := c.wires[parent[sw]]
		return w.a.index + w.b.index - sw
	}
	left, right := []int{from}, []int{to}
	for from != to {
		if depth[from] >= depth[to] {
			from = up(from)
			left = append(left, from)
		} else {
			to = up(to)
			right = append(right, to)
		}
	}
	// The common ancestor is at the end of both lists.
	for i := len(right) - 2; i >= 0; i-- {
		left = append(left, right[i])
	}
	first := slices.Index(left, slices.Min(left))
	var names []string
	for _, sw := range slices.Concat(left[first:], left[:first]) {
		names = append(names, c.plan.Switches[sw].Name)
	}
	return names
}

// addressBridged gives each connected part of bridges one subnet.
func (c *compiler) addressBridged(links *pool) {
	parts := c.components()
	members := map[int][]endpoint{}
	count := 0
	for _, part := range parts {
		count = max(count, part+1)
	}
	for node, attached := range c.attached {
		for nic, sw := range attached {
			members[parts[sw]] = append(members[parts[sw]], endpoint{false, node, nic})
		}
	}
	for part := range count {
		nics := members[part]
		if len(nics) == 0 {
			continue
		}
		// Two more addresses: that of the network and IPv4's broadcast address.
		subnet := links.alloc(len(nics) + 2)
		for i, e := range nics {
			c.iface(e).Addrs = links.addrs(subnet.start+1+uint64(i), subnet.hostBits())
		}
		c.setNeighbors(nics)
	}
	c.checkRoom(links)
	home := c.home(parts)
	for i := range c.plan.Nodes {
		c.routeBridged(&c.plan.Nodes[i])
		for nic, sw := range c.attached[i] {
			if parts[sw] == home {
				c.addHost(c.plan.Nodes[i].Name, c.plan.Nodes[i].NICs[nic].Addrs)
				break
			}
		}
	}
}

// setNeighbors gives all NICs of a small subnet permanent neighbour entries for each other.
func (c *compiler) setNeighbors(nics []endpoint) {
	if len(nics) > maxPermanent {
		return
	}
	for _, e := range nics {
		iface := c.iface(e)
		for _, other := range nics {
			if other != e {
				iface.Neighbors = append(iface.Neighbors, neighborsOf(c.iface(other))...)
			}
		}
	}
}

// routeBridged gives each NIC a routing table with its own subnet.
func (c *compiler) routeBridged(node *Node) {
	for i, nic := range node.NICs {
		for _, addr := range nic.Addrs {
			node.Routes = append(node.Routes, Route{
				Dst:      addr.Masked(),
				Table:    firstTable + i,
				Src:      addr.Addr(),
				NextHops: []NextHop{{Dev: nic.Name}},
			})
		}
	}
	node.Rules = rulesOf(node.NICs)
}

// home returns the first part of the fabric in which every node has a NIC, or -1.
func (c *compiler) home(parts []int) int {
	shared := map[int]int{}
	for _, attached := range c.attached {
		var own []int
		for _, sw := range attached {
			own = append(own, parts[sw])
		}
		for _, part := range sortedSet(own) {
			shared[part]++
		}
	}
	for part := range len(parts) {
		if shared[part] == len(c.attached) {
			return part
		}
	}
	return -1
}
