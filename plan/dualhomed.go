package plan

import (
	"net/netip"

	"railbed/plan/spec"
)

// Rail is a rail of a node whose NICs are at switches of different planes (dual-ToR). Its addresses are
// loopbacks of the node. Both NICs reach them and send from them, so that a rank that uses them survives the
// death of a switch.
type Rail struct {
	NICs  []string   `json:"nics"`
	Addr4 netip.Addr `json:"addr4"`
	Addr6 netip.Addr `json:"addr6"`
}

// planes returns the number of NICs in each rail of a node.
func (c *compiler) planes() int { return max(1, c.graph.Planes) }

// nicOf returns the NIC of a rank of a node, which is the first NIC of its rail. Ranks take rails in turn.
func (c *compiler) nicOf(node, rank int) int {
	rails := len(c.plan.Nodes[node].NICs) / c.planes()
	return rank % rails * c.planes()
}

// railNICs returns the NICs of a rail of a node.
func (c *compiler) railNICs(rail int) (nics []int) {
	for plane := range c.planes() {
		nics = append(nics, rail*c.planes()+plane)
	}
	return nics
}

// railsOf returns the number of rails of a node that have several NICs. Nodes whose programs a container
// runtime starts have no ranks, and no rails.
func (c *compiler) railsOf(node int) int {
	if n := &c.plan.Nodes[node]; c.planes() > 1 && n.Runtime != spec.CNI {
		return len(n.NICs) / c.planes()
	}
	return 0
}

// takeRails gives the rails of nodes with several rails a loopback each. The only rail of a node has the
// node's loopback.
func (r *routed) takeRails() {
	r.railLoopback = make([][]uint64, len(r.plan.Nodes))
	most := 0
	for node := range r.plan.Nodes {
		most = max(most, r.railsOf(node))
	}
	for rail := range most {
		at := map[string][]int{} // nodes by the switches of the rail
		var order [][]int
		for node := range r.plan.Nodes {
			if r.railsOf(node) < 2 || rail >= r.railsOf(node) {
				continue
			}
			var switches []int
			for _, nic := range r.railNICs(rail) {
				switches = append(switches, r.attached[node][nic])
			}
			key := keyOf(sortedSet(switches))
			if at[key] == nil {
				order = append(order, sortedSet(switches))
			}
			at[key] = append(at[key], node)
		}
		for _, switches := range order {
			nodes := at[keyOf(switches)]
			for i, start := range r.takeBlock(nodes, switches).starts {
				r.railLoopback[nodes[i]] = append(r.railLoopback[nodes[i]], start)
			}
		}
	}
}

// setRails sets the rails of a node, and their loopbacks.
func (r *routed) setRails(i int) {
	node := &r.plan.Nodes[i]
	for rail := range r.railsOf(i) {
		addrs := node.Loopbacks[:2:2]
		if len(r.railLoopback[i]) > 0 {
			addrs = r.loopbacks.addrs(r.railLoopback[i][rail], 0)
			node.Loopbacks = append(node.Loopbacks, addrs...)
		}
		one := Rail{Addr4: addrs[0].Addr(), Addr6: addrs[1].Addr()}
		for _, nic := range r.railNICs(rail) {
			one.NICs = append(one.NICs, node.NICs[nic].Name)
		}
		node.Rails = append(node.Rails, one)
	}
}

// routeRails gives each rail with an address of its own a table, whose routes use the NICs of the rail alone,
// and rules. The tables and rules follow those of the NICs.
func (r *routed) routeRails(i int, gateway gateway) {
	node := &r.plan.Nodes[i]
	if len(r.railLoopback[i]) == 0 {
		return
	}
	for k, rail := range node.Rails {
		nics, at := r.railNICs(k), len(node.NICs)+k
		own := [2]netip.Addr{rail.Addr4, rail.Addr6}
		src := func(entry) [2]netip.Addr { return own }
		node.Routes = append(node.Routes, defaultRoutes(nics, node.NICs, gateway, firstTable+at, own)...)
		node.Routes = append(node.Routes,
			routes(r.nearer(i, nics), node.NICs, gateway, firstTable+at, src)...)
		for _, addr := range own {
			node.Rules = append(node.Rules, Rule{Priority: firstRule + at,
				From: netip.PrefixFrom(addr, addr.BitLen()), Table: firstTable + at})
		}
	}
}

// homeOf returns the place of a rank of a node: its NIC or, in a dual-ToR fabric, its rail with both NICs. If
// the file asks for nic-path: bypass there, a rank has the first NIC of its rail alone, because queues past
// the kernel belong to one NIC.
func (c *compiler) homeOf(node, rank int) Rank {
	n, first := &c.plan.Nodes[node], c.nicOf(node, rank)
	nic := &n.NICs[first]
	home := Rank{Node: n.Name, NIC: nic.Name, Addr4: nic.Addrs[0].Addr(), Addr6: nic.Addrs[1].Addr(),
		Bypass: n.Bypass}
	if len(n.Rails) == 0 || n.Bypass {
		return home
	}
	rail := n.Rails[first/c.planes()]
	home.Addr4, home.Addr6, home.SecondNIC = rail.Addr4, rail.Addr6, rail.NICs[1]
	return home
}
