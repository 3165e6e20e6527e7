package forward

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/wire"
	"railbed/plan"
)

// kind is the meaning of a prefix for a router.
type kind uint8

const (
	routed    kind = iota // behind a next hop
	local                 // its own address
	connected             // an address on a link without a neighbour: the rest of a subnet
)

// entry is the routing entry of a prefix.
type entry struct {
	kind kind
	// group has the next hops of a routed prefix. For a connected prefix it has only the port, to
	// check whether the port is up.
	group *group
	// shorter is the entry of the longest prefix that contains this one. It is used while no port
	// of this one is up.
	shorter *entry
	// src is the source address of packets that the router itself sends there.
	src  [16]byte
	bits int
}

// usable returns the entry or the next shorter one with a port that is up, or nil.
func (e *entry) usable() *entry {
	for e != nil && e.kind != local && len(e.group.live) == 0 {
		e = e.shorter
	}
	return e
}

// key is an address as two numbers; IPv4 addresses are mapped into IPv6.
type key struct{ high, low uint64 }

func keyOf(a *[16]byte) key {
	return key{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])}
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.high, other.high), cmp.Compare(k.low, other.low))
}

// lookupTable finds the longest prefix of an address. All prefixes of a family are split into
// disjoint ranges, each with its longest prefix, sorted by their starts. A lookup is one binary
// search, of 11 steps for 1,000 prefixes, and takes the same time for all prefix lengths.
type lookupTable struct {
	high, low []uint64 // start of each range; it ends before the next
	entries   []*entry // nil where there is no prefix
}

// find4 is find for mapped IPv4 addresses, whose high halves are all equal.
func (t *lookupTable) find4(low uint64) *entry {
	base, n := 0, len(t.low)
	for n > 1 {
		half := n / 2
		if t.low[base+half] <= low {
			base += half
		}
		n -= half
	}
	return t.entries[base]
}

// find returns the entry of an address, or nil. The first range starts at 0.
func (t *lookupTable) find(k key) *entry {
	base, n := 0, len(t.low)
	for n > 1 {
		half := n / 2
		if at := base + half; t.high[at] < k.high || t.high[at] == k.high && t.low[at] <= k.low {
			base = at
		}
		n -= half
	}
	return t.entries[base]
}

// ranged is a prefix that will be split into ranges.
type ranged struct {
	first, last key
	entry       *entry
}

// newLookupTable splits prefixes of one family into ranges, and sets each entry's next shorter one.
// All prefixes are different. The table's first range begins at the lowest key.
func newLookupTable(prefixes map[netip.Prefix]*entry, lowest key) *lookupTable {
	var all []ranged
	for prefix, e := range prefixes {
		bits := prefix.Bits()
		if prefix.Addr().Is4() {
			bits += 96
		}
		first := prefix.Masked().Addr().As16()
		e.bits = bits
		all = append(all, ranged{keyOf(&first), lastOf(keyOf(&first), bits), e})
	}
	slices.SortFunc(all, func(a, b ranged) int {
		return cmp.Or(a.first.compare(b.first), cmp.Compare(a.entry.bits, b.entry.bits))
	})
	t := &lookupTable{}
	t.begin(lowest, nil)
	var open []ranged // prefixes that contain the current address, shortest first
	closeBefore := func(k key) {
		for len(open) > 0 && open[len(open)-1].last.compare(k) < 0 {
			ended := open[len(open)-1]
			open = open[:len(open)-1]
			var outer *entry
			if len(open) > 0 {
				outer = open[len(open)-1].entry
			}
			t.begin(ended.last.next(), outer)
		}
	}
	for _, r := range all {
		closeBefore(r.first)
		if len(open) > 0 {
			r.entry.shorter = open[len(open)-1].entry
		}
		t.begin(r.first, r.entry)
		open = append(open, r)
	}
	for len(open) > 0 && open[len(open)-1].last != (key{^uint64(0), ^uint64(0)}) {
		closeBefore(open[len(open)-1].last.next())
	}
	return t
}

// begin starts a range. A range that starts at the same address is empty and is replaced.
func (t *lookupTable) begin(k key, e *entry) {
	if n := len(t.low); n > 0 && t.low[n-1] == k.low && t.high[n-1] == k.high {
		t.entries[n-1] = e
		return
	}
	t.high, t.low, t.entries = append(t.high, k.high), append(t.low, k.low), append(t.entries, e)
}

func (k key) next() key {
	if k.low++; k.low == 0 {
		k.high++
	}
	return k
}

// lastOf returns the last address of a prefix.
func lastOf(first key, bits int) key {
	if bits >= 64 {
		return key{first.high, first.low | ^uint64(0)>>(bits-64)}
	}
	return key{first.high | ^uint64(0)>>bits, ^uint64(0)}
}

// routes is the part of New that reads a switch's routes.
type routes struct {
	sw       *plan.Switch
	ports    map[string]int
	prefixes [2]map[netip.Prefix]*entry // by family
	groups   map[string]*group
	order    []*group
	errs     []error
}

func newRoutes(sw *plan.Switch) (*routes, error) {
	r := &routes{sw: sw, ports: map[string]int{}, groups: map[string]*group{}}
	r.prefixes = [2]map[netip.Prefix]*entry{{}, {}}
	for i, port := range sw.Ports {
		r.ports[port.Name] = i
	}
	for route := range sw.Routes.All() {
		r.addRoute(route)
	}
	for i, port := range sw.Ports {
		for _, subnet := range port.Addrs {
			r.add(subnet.Masked(), connected, r.group([]hop{{port: i, weight: 1}}), subnet.Addr())
		}
		for _, n := range port.Neighbors {
			r.add(host(n.Addr), routed, r.group([]hop{{port: i, mac: wire.MAC(n.MAC), weight: 1}}),
				r.portAddress(i, n.Addr))
		}
	}
	own := slices.Clone(sw.Loopbacks)
	for _, port := range sw.Ports {
		own = append(own, port.Addrs...)
	}
	for _, a := range own {
		r.add(host(a.Addr()), local, nil, a.Addr())
	}
	return r, errors.Join(r.errs...)
}

// host returns the prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// portAddress returns the port's address in the family of another one: the source of packets that
// the router sends on its link.
func (r *routes) portAddress(port int, family netip.Addr) netip.Addr {
	for _, a := range r.sw.Ports[port].Addrs {
		if a.Addr().Is4() == family.Is4() {
			return a.Addr()
		}
	}
	return r.source(family)
}

// source returns the switch's own address in a family, its loopback, which is used unless a route
// has another one.
func (r *routes) source(family netip.Addr) netip.Addr {
	for _, a := range r.sw.Loopbacks {
		if a.Addr().Is4() == family.Is4() {
			return a.Addr()
		}
	}
	for _, port := range r.sw.Ports {
		for _, a := range port.Addrs {
			if a.Addr().Is4() == family.Is4() {
				return a.Addr()
			}
		}
	}
	return netip.Addr{}
}

// add adds a prefix; a later one replaces an equal earlier one.
func (r *routes) add(prefix netip.Prefix, k kind, g *group, src netip.Addr) {
	family := 0
	if prefix.Addr().Is6() {
		family = 1
	}
	e := &entry{kind: k, group: g}
	if src.IsValid() {
		e.src = src.As16()
	}
	r.prefixes[family][prefix.Masked()] = e
}

// addRoute adds a route of the plan. A next hop without a gateway reaches the link's neighbours in
// the prefix.
func (r *routes) addRoute(route plan.Route) {
	if route.Table != 0 {
		r.errs = append(r.errs, fmt.Errorf("route %s of switch %s: table is %d, and switches have one",
			route.Dst, r.sw.Name, route.Table))
		return
	}
	src := route.Src
	if !src.IsValid() {
		src = r.source(route.Dst.Addr())
	}
	var hops []hop
	for _, h := range route.NextHops {
		port, found := r.ports[h.Dev]
		if !found {
			r.errs = append(r.errs, fmt.Errorf("route %s of switch %s: it has no port %s", route.Dst,
				r.sw.Name, h.Dev))
			continue
		}
		one := hop{port: port, weight: uint32(max(h.Weight, 1))}
		if !h.Via.IsValid() {
			r.add(route.Dst, connected, r.group([]hop{one}), src)
			continue
		}
		i := slices.IndexFunc(r.sw.Ports[port].Neighbors, func(n plan.Neighbor) bool {
			return n.Addr == h.Via
		})
		if i < 0 {
			r.errs = append(r.errs, fmt.Errorf("route %s of switch %s: port %s has no neighbour %s, want a "+
				"permanent entry", route.Dst, r.sw.Name, h.Dev, h.Via))
			continue
		}
		one.mac = wire.MAC(r.sw.Ports[port].Neighbors[i].MAC)
		hops = append(hops, one)
	}
	if len(hops) > 0 {
		r.add(route.Dst, routed, r.group(hops), src)
	}
}

// group returns the group of these next hops. Routes with the same next hops share it, so that its
// state (a turn or a flowlet) belongs to the ports.
func (r *routes) group(hops []hop) *group {
	name := fmt.Sprint(hops)
	g := r.groups[name]
	if g == nil {
		g = newGroup(uint32(len(r.order)), hops)
		r.groups[name] = g
		r.order = append(r.order, g)
	}
	return g
}
