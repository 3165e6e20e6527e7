package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"railbed/internal/plural"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// address decides the addresses, neighbours, routes and the hosts file.
func (c *compiler) address() {
	loopbacks, links := c.pools()
	if c.bridged() {
		c.addressBridged(links)
	} else {
		c.addressRouted(loopbacks, links)
	}
}

// checkMTU reports a link between switches whose MTU is below that of a node's link whose packets
// cross it. The switch would drop such packets.
func (c *compiler) checkMTU() {
	if c.bridged() {
		return
	}
	widest := make([]int, len(c.ports)) // MTU of the links of the switch's own nodes
	carrier := make([]int, len(c.ports))
	narrow, wide := math.MaxInt, 0
	var edges []int
	for i, l := range c.plan.Links {
		w := c.wires[i]
		if w.a.isSwitch {
			narrow = min(narrow, l.MTU)
			continue
		}
		wide = max(wide, l.MTU)
		if widest[w.b.index] == 0 {
			edges = append(edges, w.b.index)
		}
		if l.MTU > widest[w.b.index] {
			widest[w.b.index], carrier[w.b.index] = l.MTU, i
		}
	}
	if narrow >= wide {
		return
	}
	reported := map[string]bool{} // by path, because one value can make many links narrow
	for _, target := range edges {
		c.checkMTUTowards(target, widest, carrier, reported)
	}
}

// checkMTUTowards follows the shortest paths to one switch, the farthest switches first. It passes
// on the largest packet that each switch may have to forward.
func (c *compiler) checkMTUTowards(target int, widest, carrier []int, reported map[string]bool) {
	distance := c.distances([]int{target})
	order := make([]int, 0, len(distance))
	for sw, d := range distance {
		if d > 0 {
			order = append(order, sw)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(distance[b]-distance[a], a-b)
	})
	widest, carrier = slices.Clone(widest), slices.Clone(carrier)
	for _, sw := range order {
		if widest[sw] == 0 {
			continue
		}
		for _, p := range c.towards(sw, distance) {
			port := c.ports[sw][p]
			l, from := c.plan.Links[port.link], c.plan.Links[carrier[sw]]
			if l.MTU < widest[sw] {
				c.tooNarrow(l, from, reported)
			}
			if next := port.peer.index; widest[sw] > widest[next] {
				widest[next], carrier[next] = widest[sw], carrier[sw]
			}
		}
	}
}

// tooNarrow reports a link that cannot carry the packets of another link, once for each value of
// the file.
func (c *compiler) tooNarrow(l, from Link, reported map[string]bool) {
	path := c.linkMTU(l)
	if path == "fabric.links" {
		path = c.linkMTU(from)
	}
	if !reported[path] {
		reported[path] = true
		c.wrong(path, fmt.Sprintf("want at least %d on every link of the path", from.MTU),
			"link %s has mtu %d, and packets of %s with mtu %d cross it", l.Name, l.MTU, from.Name, from.MTU)
	}
}

// checkReach reports a fabric in which a node cannot reach another node's loopback, and workloads
// whose ranks have NICs without a path between them.
//
// Some NICs are separate on purpose: rails without spines, and the planes of a dual-plane fabric.
// Two nodes need one pair of NICs with a path.
func (c *compiler) checkReach() {
	parts := c.components()
	// Nodes with NICs in the same parts reach the same nodes, so one node of each kind is compared.
	var kinds [][]int
	first := map[string]int{}
	for node, attached := range c.attached {
		var own []int
		for _, sw := range attached {
			own = append(own, parts[sw])
		}
		own = sortedSet(own)
		if _, known := first[keyOf(own)]; !known {
			first[keyOf(own)] = node
			kinds = append(kinds, own)
		}
	}
	for i, a := range kinds {
		for _, b := range kinds[i+1:] {
			if !slices.ContainsFunc(a, func(part int) bool { return slices.Contains(b, part) }) {
				c.unreached(parts, first[keyOf(a)], first[keyOf(b)])
				return
			}
		}
	}
	if c.bridged() && c.home(parts) < 0 {
		// Routers would join the nodes, as each two of them have a part in common.
		c.wrong("fabric.topology", "want links that join all nodes, or "+c.routing(),
			"no bridged network has a NIC of every node")
		return
	}
	c.checkRings(parts)
}

// unreached reports two nodes without a path between them, and a node with NICs in the parts of both.
func (c *compiler) unreached(parts []int, from, to int) {
	what := fmt.Sprintf("no path leads from node %s to node %s", c.plan.Nodes[from].Name,
		c.plan.Nodes[to].Name)
	want := "want links that join all nodes"
	for middle, attached := range c.attached {
		near, far := -1, -1
		for _, sw := range attached {
			switch parts[sw] {
			case parts[c.attached[from][0]]:
				near = sw
			case parts[c.attached[to][0]]:
				far = sw
			}
		}
		if near >= 0 && far >= 0 {
			name := c.plan.Nodes[middle].Name
			what += fmt.Sprintf(": node %s joins their switches, and nodes do not forward", name)
			want = fmt.Sprintf("want a link between switches such as %s -- %s, or a switch in place of %s",
				c.plan.Switches[near].Name, c.plan.Switches[far].Name, name)
			break
		}
	}
	c.wrong("fabric.topology", want, "%s", what)
}

// rankPlace is the node of a rank and the number of its NIC.
type rankPlace struct{ node, nic int }

// rankPlaces returns the places of all ranks, in order.
func (c *compiler) rankPlaces() (places []rankPlace) {
	for i := range c.plan.Nodes {
		for r := range c.t.NodeFor(c.plan.Nodes[i].Name).Ranks {
			places = append(places, rankPlace{i, c.nicOf(i, r)})
		}
	}
	return places
}

// checkRanks reports ranks of steps that the testbed lacks.
func (c *compiler) checkRanks() {
	count := len(c.rankPlaces())
	for i := range c.t.Steps {
		key, action := c.t.Steps[i].Action()
		if action == nil || action.Traits().Carriage == nil {
			continue
		}
		for j, rank := range action.Traits().Carriage.Ranks {
			if rank >= count {
				c.wrong(fmt.Sprintf("steps[%d].%s.ranks[%d]", i, key, j),
					fmt.Sprintf("want 0 to %d, or more ranks: of nodes", count-1),
					"rank %d of a testbed with %s", rank, plural.Count(count, "ranks"))
			}
		}
	}
}

// checkRings follows the hops of every workload. A rank sends from its own NIC to the NIC of the other
// rank, unless both are on one node.
func (c *compiler) checkRings(parts []int) {
	all := c.rankPlaces()
	for i, step := range c.t.Steps {
		if step.Workload == nil {
			continue
		}
		ranks, path := all, fmt.Sprintf("steps[%d].workload", i)
		if used := step.Workload.Ranks; len(used) > 0 {
			ranks = nil
			for _, rank := range used {
				ranks = append(ranks, all[rank])
			}
		}
		if len(ranks) < 2 {
			want, has := "want at least 2 ranks: more nodes, or ranks: 2 for a node", "testbed"
			if len(all) > 1 {
				path, want, has = path+".ranks", "want at least 2", "workload"
			}
			c.wrong(path, want, "the %s has %s", has, plural.Count(len(ranks), "ranks"))
			continue
		}
		if root := step.Workload.Root; root >= len(ranks) {
			c.wrong(path+".root", fmt.Sprintf("want 0 to %d", len(ranks)-1), "root is rank %d of %s", root,
				plural.Count(len(ranks), "ranks"))
		}
		for _, hop := range c.hops(step.Workload, ranks) {
			from, to := ranks[hop[0]], ranks[hop[1]]
			if from.node == to.node ||
				parts[c.attached[from.node][from.nic]] == parts[c.attached[to.node][to.nic]] {
				continue
			}
			a, b := c.plan.Nodes[from.node], c.plan.Nodes[to.node]
			c.wrong(path, "want a fabric that joins them (spines above rails), or one rank for each node",
				"rank %d on %s:%s sends to rank %d on %s:%s, and no path joins these NICs",
				hop[0], a.Name, a.NICs[from.nic].Name, hop[1], b.Name, b.NICs[to.nic].Name)
			break
		}
	}
}

// hops returns pairs of indexes of ranks, of which the first sends to the second.
func (c *compiler) hops(w *spec.Workload, places []rankPlace) (hops [][2]int) {
	ranks := make([]Rank, len(places))
	for i, place := range places {
		ranks[i] = Rank{Rank: i, Node: c.plan.Nodes[place.node].Name}
	}
	algorithm, largest := Algorithms(w, ranks)
	if algorithm != largest {
		algorithm = schedule.Ring
	}
	for _, hop := range Hops(algorithm, ranks) {
		hops = append(hops, [2]int{hop[0].Rank, hop[1].Rank})
	}
	return hops
}
