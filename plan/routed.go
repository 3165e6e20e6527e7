package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Tables and priorities of policy routing on nodes. NIC i has table firstTable+i, selected by a
// rule of priority firstRule+i. The rules come before the kernel's rule for the main table (254 at
// priority 32766) and after its rule for the local table.
const (
	firstTable = 1000
	firstRule  = 1000
)

// routed is a fabric of routers, with one subnet for each link and a loopback for each node and
// router.
type routed struct {
	*compiler
	loopbacks, links *pool
	order            []*pool
	regions          []region
	// nodeLoopback and switchLoopback hold the offset of each node's and each switch's loopback.
	nodeLoopback, switchLoopback []uint64
	// railLoopback holds the offset of the loopback of each node's rails, where a node has several rails.
	railLoopback [][]uint64
	weights      map[string]int // of links, by name
}

// addressRouted decides the addresses and routes of a fabric of routers.
//
// Addresses are chosen so that routes aggregate. The loopbacks of nodes on the same switches form
// one aligned block, and so do the link subnets of all nodes of one switch. A distant switch has
// one route to each block. Only the switch itself has a route for each of its nodes.
func (c *compiler) addressRouted(loopbacks, links *pool) {
	r := &routed{compiler: c, loopbacks: loopbacks, links: links, order: []*pool{loopbacks, links},
		weights: map[string]int{}}
	for i := range c.plan.Links {
		r.weights[c.plan.Links[i].Name] = max(1, c.plan.Links[i].Weight)
	}
	r.takeLoopbacks()
	r.takeRails()
	r.takeLinks()
	c.checkRoom(loopbacks)
	c.checkRoom(links)
	if len(c.problems) > 0 {
		return
	}
	r.setAddresses()
	ways := r.orderRegions()
	var m tableMaker
	for i := range c.plan.Switches {
		m.reset(ways)
		r.routeSwitch(i, &m)
	}
	for i := range c.plan.Nodes {
		r.routeNode(i)
	}
}

// takeLoopbacks gives each group of nodes a block. It skips the first address of a block, because
// old programs take an address that ends in .0 for a broadcast address.
func (r *routed) takeLoopbacks() {
	r.nodeLoopback = make([]uint64, len(r.plan.Nodes))
	r.switchLoopback = make([]uint64, len(r.plan.Switches))
	for _, g := range r.groups() {
		reg := r.takeBlock(g.nodes, g.switches)
		for i, node := range g.nodes {
			r.nodeLoopback[node] = reg.starts[i]
		}
	}
	first := r.loopbacks.alloc(len(r.plan.Switches) + 1)
	for i := range r.plan.Switches {
		offset := first.start + 1 + uint64(i)
		r.switchLoopback[i] = offset
		r.regions = append(r.regions, region{pool: r.loopbacks, block: block{offset, 1}, at: []int{i},
			distance: r.distances([]int{i})})
	}
}

// takeBlock gives nodes a block of loopbacks that the given switches deliver to.
func (r *routed) takeBlock(nodes, switches []int) region {
	b := r.loopbacks.alloc(len(nodes) + 1)
	reg := region{pool: r.loopbacks, block: b, at: switches, distance: r.distances(switches), nodes: nodes}
	for i := range nodes {
		reg.starts = append(reg.starts, b.start+1+uint64(i))
	}
	r.regions = append(r.regions, reg)
	return reg
}

// takeLinks numbers the two ends of each link. B, which is the switch of a node's link, gets the
// even address and A the odd one. Subnets of links between switches come last and have no routes,
// because nothing is sent to them.
func (r *routed) takeLinks() {
	offset := make([]uint64, len(r.wires))
	for sw, ports := range r.ports {
		var hosts []int
		for _, p := range ports {
			if !p.peer.isSwitch {
				hosts = append(hosts, p.link)
			}
		}
		if len(hosts) == 0 {
			continue
		}
		b := r.links.alloc(2 * len(hosts))
		for i, link := range hosts {
			offset[link] = b.start + 2*uint64(i)
		}
		r.regions = append(r.regions, region{pool: r.links, block: b, at: []int{sw},
			distance: r.distances([]int{sw})})
	}
	for i, w := range r.wires {
		if w.a.isSwitch {
			offset[i] = r.links.alloc(2).start
		}
	}
	for i, w := range r.wires {
		r.iface(w.a).Addrs = r.links.addrs(offset[i]+1, 1)
		r.iface(w.b).Addrs = r.links.addrs(offset[i], 1)
	}
}

// setAddresses sets loopbacks, the hosts file and permanent neighbours.
func (r *routed) setAddresses() {
	for i := range r.plan.Nodes {
		node := &r.plan.Nodes[i]
		node.Loopbacks = r.loopbacks.addrs(r.nodeLoopback[i], 0)
		r.addHost(node.Name, node.Loopbacks)
		r.setRails(i)
	}
	for i := range r.plan.Switches {
		sw := &r.plan.Switches[i]
		sw.Loopbacks = r.loopbacks.addrs(r.switchLoopback[i], 0)
		r.addHost(sw.Name, sw.Loopbacks)
	}
	for _, w := range r.wires {
		a, b := r.iface(w.a), r.iface(w.b)
		a.Neighbors, b.Neighbors = neighborsOf(b), neighborsOf(a)
	}
}

func neighborsOf(i *Interface) []Neighbor {
	return []Neighbor{{i.Addrs[0].Addr(), i.MAC}, {i.Addrs[1].Addr(), i.MAC}}
}

// addHost adds a name to the hosts file.
func (c *compiler) addHost(name string, addrs []netip.Prefix) {
	for _, a := range addrs {
		c.plan.Hosts = append(c.plan.Hosts, HostEntry{a.Addr(), name})
	}
}

// nameNICs adds the nodes' NICs to the hosts file, each as the node's name, a hyphen and the NIC's
// name. They follow the nodes, so the address of a node in a shared subnet resolves to the node's
// name first. Names of nodes and switches have precedence. If two NICs would have one name, as NIC c
// of node a-b and NIC b-c of node a, neither has it. Hosts files ignore case.
func (c *compiler) nameNICs() {
	names := map[string]int{}
	for _, h := range c.plan.Hosts {
		names[h.Name]++
	}
	each := func(do func(name string, addrs []netip.Prefix)) {
		for i := range c.plan.Nodes {
			for _, nic := range c.plan.Nodes[i].NICs {
				do(c.plan.Nodes[i].Name+"-"+nic.Name, nic.Addrs)
			}
		}
	}
	each(func(name string, _ []netip.Prefix) { names[strings.ToLower(name)]++ })
	each(func(name string, addrs []netip.Prefix) {
		if names[strings.ToLower(name)] == 1 {
			c.addHost(name, addrs)
		}
	})
}

// orderRegions sorts the regions by pool and address, and numbers their distances. It returns the
// count of different distances.
func (r *routed) orderRegions() (ways int) {
	slices.SortFunc(r.regions, func(a, b region) int {
		return cmp.Or(slices.Index(r.order, a.pool)-slices.Index(r.order, b.pool),
			cmp.Compare(a.block.start, b.block.start))
	})
	known := map[*int]int{}
	for i := range r.regions {
		reg := &r.regions[i]
		way, found := known[&reg.distance[0]]
		if !found {
			way = len(known)
			known[&reg.distance[0]] = way
		}
		reg.way = way
	}
	return len(known)
}

// routeSwitch gives a router one route to each region over all its shortest paths, and one route to
// each of its own nodes.
func (r *routed) routeSwitch(i int, m *tableMaker) {
	sw := &r.plan.Switches[i]
	own := map[int][]int{}
	for p, port := range r.ports[i] {
		if node := port.peer.index; !port.peer.isSwitch {
			own[node] = append(own[node], p)
		}
	}
	for k := range r.regions {
		reg := &r.regions[k]
		pool := uint8(slices.Index(r.order, reg.pool))
		switch distance := reg.distance[i]; {
		case distance > 0:
			if m.set[reg.way] < 0 {
				m.ports = r.appendTowards(m.ports[:0], i, reg.distance)
				m.set[reg.way] = int32(m.setOf(m.ports))
			}
			m.add(routedBlock{start: uint32(reg.block.start), bits: uint8(reg.block.hostBits()), pool: pool,
				set: uint32(m.set[reg.way])})
		case distance == 0:
			for i, node := range reg.nodes { // its own region
				m.add(routedBlock{start: uint32(reg.starts[i]), pool: pool, set: m.setOf(own[node])})
			}
		}
	}
	gateway := func(p int) ([2]netip.Addr, int) {
		peer := r.iface(r.ports[i][p].peer)
		return [2]netip.Addr{peer.Addrs[0].Addr(), peer.Addrs[1].Addr()},
			max(1, r.plan.Links[r.ports[i][p].link].Weight)
	}
	shape := &routeShape{pools: r.order, src: [2]netip.Addr{sw.Loopbacks[0].Addr(), sw.Loopbacks[1].Addr()}}
	for _, ports := range m.sets {
		shape.sets = append(shape.sets,
			[2][]NextHop{nextHops(ports, sw.Ports, gateway, 0), nextHops(ports, sw.Ports, gateway, 1)})
	}
	sw.Routes = RouteTable{blocks: slices.Clone(m.blocks), shape: shape}
}

// routeNode gives a node its routes. They are a default route and a route to all loopbacks over all
// its NICs, and a route to each region that is nearer over some NICs. Each NIC has a table and a
// rule.
//
// Packets to a loopback have the node's own loopback as source, which every NIC reaches. Packets to
// a NIC's address have the address of the NIC by which they leave. Programs that exchange NIC
// addresses, such as OpenMPI's TCP transport, refuse a peer with another source address.
func (r *routed) routeNode(i int) {
	node := &r.plan.Nodes[i]
	gateway := func(nic int) ([2]netip.Addr, int) {
		port := node.NICs[nic].Neighbors
		return [2]netip.Addr{port[0].Addr, port[1].Addr}, r.weights[node.NICs[nic].Link]
	}
	all := make([]int, len(node.NICs))
	for nic := range all {
		all[nic] = nic
	}
	src := func(e entry) [2]netip.Addr {
		if e.pool != r.loopbacks {
			return [2]netip.Addr{}
		}
		return [2]netip.Addr{node.Loopbacks[0].Addr(), node.Loopbacks[1].Addr()}
	}
	node.Routes = defaultRoutes(all, node.NICs, gateway, 0, [2]netip.Addr{})
	for family, loopbacks := range []netip.Prefix{r.loopbacks.v4, r.loopbacks.v6} {
		node.Routes = append(node.Routes, Route{
			Dst:      loopbacks,
			Src:      node.Loopbacks[family].Addr(),
			NextHops: nextHops(all, node.NICs, gateway, family),
		})
	}
	node.Routes = append(node.Routes, routes(r.nearer(i, all), node.NICs, gateway, 0, src)...)
	for nic := range node.NICs {
		addrs := node.NICs[nic].Addrs
		own := [2]netip.Addr{addrs[0].Addr(), addrs[1].Addr()}
		node.Routes = append(node.Routes,
			defaultRoutes([]int{nic}, node.NICs, gateway, firstTable+nic, own)...)
	}
	node.Rules = rulesOf(node.NICs)
	r.routeRails(i, gateway)
}

// nearer returns routes to the regions to which not all of these NICs of a node have the same distance.
func (r *routed) nearer(node int, all []int) []entry {
	if len(all) < 2 {
		return nil
	}
	attached := r.attached[node]
	var entries []entry
	for _, reg := range r.regions {
		if r.isSubnet(reg, attached) {
			continue
		}
		var best []int
		least := 0
		for _, nic := range all {
			d := reg.distance[attached[nic]]
			switch {
			case d == unreachable || len(best) > 0 && d > least:
			case len(best) > 0 && d == least:
				best = append(best, nic)
			default:
				best, least = []int{nic}, d
			}
		}
		if len(best) > 0 && !slices.Equal(best, all) {
			entries = append(entries, entry{reg.pool, reg.block, best})
		}
	}
	return aggregate(entries, r.order)
}

// isSubnet reports whether a region is exactly the subnet of one of the NICs. The kernel adds a
// route to it with the address. A route through a gateway would replace that route, and the gateway
// would be unreachable.
func (r *routed) isSubnet(reg region, attached []int) bool {
	return reg.pool == r.links && reg.block.size == 2 && slices.Contains(attached, reg.at[0])
}

var defaults = [2]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func defaultRoutes(through []int, nics []Interface, gateway gateway, table int, src [2]netip.Addr) []Route {
	both := make([]Route, 2)
	for family := range both {
		both[family] = Route{Dst: defaults[family], Table: table, Src: src[family],
			NextHops: nextHops(through, nics, gateway, family)}
	}
	return both
}

// rulesOf returns the rules by which packets with a NIC's address leave by that NIC.
func rulesOf(nics []Interface) []Rule {
	var rules []Rule
	for i, nic := range nics {
		for _, addr := range nic.Addrs {
			rules = append(rules, Rule{Priority: firstRule + i,
				From: netip.PrefixFrom(addr.Addr(), addr.Addr().BitLen()), Table: firstTable + i})
		}
	}
	return rules
}
