package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// walker follows packets through a plan as a kernel would, hop by hop. It uses no code of the
// compiler: only the plan's tables, links and neighbours.
type walker struct {
	plan    *Plan
	devices map[string]*device
	memo    map[walkKey]walkResult
}

// device is a node or a switch with the data for forwarding.
type device struct {
	name   string
	isNode bool
	ifaces []Interface
	local  map[netip.Addr]bool
	// tables holds the routes by table, longest prefix first. Table 0 also has the connected
	// subnets, as the kernel adds them with the addresses.
	tables map[int][]Route
	rules  []Rule
}

type walkKey struct {
	device string
	dst    netip.Addr
}

type walkResult struct {
	end  string // the device that the packet reaches; empty if it is refused
	hops int
	err  error
}

func newWalker(p *Plan) *walker {
	w := &walker{plan: p, devices: map[string]*device{}, memo: map[walkKey]walkResult{}}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		w.add(&device{name: n.Name, isNode: true, ifaces: n.NICs, rules: n.Rules}, n.Loopbacks, n.Routes)
	}
	for i := range p.Switches {
		s := &p.Switches[i]
		w.add(&device{name: s.Name, ifaces: s.Ports}, s.Loopbacks, s.Routes.List())
	}
	return w
}

func (w *walker) add(d *device, loopbacks []netip.Prefix, routes []Route) {
	d.local, d.tables = map[netip.Addr]bool{}, map[int][]Route{}
	for _, l := range loopbacks {
		d.local[l.Addr()] = true
	}
	for _, iface := range d.ifaces {
		for _, addr := range iface.Addrs {
			d.local[addr.Addr()] = true
			d.tables[0] = append(d.tables[0],
				Route{Dst: addr.Masked(), NextHops: []NextHop{{Dev: iface.Name}}})
		}
	}
	for _, r := range routes {
		d.tables[r.Table] = append(d.tables[r.Table], r)
	}
	for _, table := range d.tables {
		slices.SortStableFunc(table, func(a, b Route) int { return b.Dst.Bits() - a.Dst.Bits() })
	}
	slices.SortStableFunc(d.rules, func(a, b Rule) int { return a.Priority - b.Priority })
	w.devices[d.name] = d
}

// lookup finds the next hops of a packet. src is zero for a packet of a socket that is not bound.
func (d *device) lookup(src, dst netip.Addr) []NextHop {
	for _, rule := range d.rules {
		if src.IsValid() && rule.From.Contains(src) {
			if hops := longest(d.tables[rule.Table], dst); hops != nil {
				return hops
			}
		}
	}
	return longest(d.tables[0], dst)
}

func longest(table []Route, dst netip.Addr) []NextHop {
	for _, r := range table {
		if r.Dst.Contains(dst) {
			return r.NextHops
		}
	}
	return nil
}

// walk sends a packet from a device to an address over every next hop at once. All paths must end
// at one device after the same number of links.
func (w *walker) walk(from string, src, dst netip.Addr) walkResult {
	d := w.devices[from]
	if d.local[dst] {
		return walkResult{end: from}
	}
	hops := d.lookup(src, dst)
	if len(hops) == 0 {
		return walkResult{}
	}
	var result walkResult
	for i, hop := range hops {
		next, err := w.cross(d, hop, dst)
		if err != nil {
			return walkResult{err: fmt.Errorf("%s to %s: %w", from, dst, err)}
		}
		r := w.arrive(next, dst)
		if r.err != nil {
			return r
		}
		r.hops++
		if i > 0 && r != result {
			return walkResult{err: fmt.Errorf("%s to %s: over %s it ends at %q after %d links, over %s at "+
				"%q after %d", from, dst, hops[0].Dev, result.end, result.hops, hop.Dev, r.end, r.hops)}
		}
		result = r
	}
	return result
}

// arrive does as walk for a packet that a device received and may forward.
func (w *walker) arrive(at string, dst netip.Addr) walkResult {
	if d := w.devices[at]; d.isNode && !d.local[dst] {
		return walkResult{err: fmt.Errorf("%s received a packet for %s", at, dst)}
	}
	key := walkKey{at, dst}
	if known, found := w.memo[key]; found {
		return known
	}
	w.memo[key] = walkResult{err: fmt.Errorf("a packet for %s comes back to %s", dst, at)}
	result := w.walk(at, netip.Addr{}, dst)
	w.memo[key] = result
	return result
}

// cross follows a next hop to the other end of its link and checks that the address and the
// neighbour entry belong to that end.
func (w *walker) cross(d *device, hop NextHop, dst netip.Addr) (string, error) {
	i := slices.IndexFunc(d.ifaces, func(i Interface) bool { return i.Name == hop.Dev })
	if i < 0 {
		return "", fmt.Errorf("next hop over %s, which does not exist", hop.Dev)
	}
	via := hop.Via
	if !via.IsValid() {
		via = dst
	}
	if onLink := slices.ContainsFunc(d.ifaces[i].Addrs, func(p netip.Prefix) bool {
		return p.Masked().Contains(via)
	}); !onLink {
		return "", fmt.Errorf("next hop %s is not on the subnet of %s", via, hop.Dev)
	}
	name, port, _ := strings.Cut(d.ifaces[i].Peer, ":")
	peer := w.devices[name]
	p := slices.IndexFunc(peer.ifaces, func(i Interface) bool { return i.Name == port })
	far := peer.ifaces[p]
	if !slices.ContainsFunc(far.Addrs, func(p netip.Prefix) bool { return p.Addr() == via }) {
		return "", fmt.Errorf("next hop %s over %s is not %s:%s", via, hop.Dev, name, port)
	}
	if !slices.Contains(d.ifaces[i].Neighbors, Neighbor{via, far.MAC}) {
		return "", fmt.Errorf("%s over %s has no permanent neighbour entry", via, hop.Dev)
	}
	return name, nil
}

// graph is the plan's links as a plain undirected graph. It is the oracle for lengths of paths and
// equal-cost next hops.
type graph map[string]map[string]string // device -> port -> device

func graphOf(p *Plan) graph {
	g := graph{}
	for _, l := range p.Links {
		for _, side := range [][2]End{{l.A, l.B}, {l.B, l.A}} {
			if g[side[0].Node] == nil {
				g[side[0].Node] = map[string]string{}
			}
			g[side[0].Node][side[0].Port] = side[1].Node
		}
	}
	return g
}

// distancesTo counts links to a target without passing through other nodes. If there are ports,
// the last link must be at one of these ports of the target.
func (g graph) distancesTo(p *Plan, target string, ports []string) map[string]int {
	distance := map[string]int{target: 0}
	var queue []string
	for port, next := range g[target] {
		if _, seen := distance[next]; !seen && (ports == nil || slices.Contains(ports, port)) {
			distance[next] = 1
			queue = append(queue, next)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		if p.Switch(queue[0]) == nil {
			continue
		}
		for _, next := range g[queue[0]] {
			if _, seen := distance[next]; !seen {
				distance[next] = distance[queue[0]] + 1
				queue = append(queue, next)
			}
		}
	}
	return distance
}
