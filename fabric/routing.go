package fabric

import (
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/kernel"
	"railbed/plan"
)

// localhost are the addresses that the kernel adds to a loopback when it is first set up. IPv6 may
// be switched off, so only hosts with an IPv6 loopback of their own are sure to have the second.
var localhost = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}

// addresses returns all addresses that the host must have.
func (f *Fabric) addresses(h *host) []kernel.Address {
	want := slices.Clone(h.loopbacks)
	for _, prefix := range localhost {
		if prefix.Addr().Is4() || hasIPv6(h.loopbacks) {
			want = append(want, kernel.Address{Index: loopbackIndex, Prefix: prefix})
		}
	}
	for _, p := range h.ports {
		for _, prefix := range p.Addrs {
			if !f.cut(p) || prefix.Addr().Is4() {
				// the kernel drops an interface's IPv6 addresses when it goes down
				want = append(want, kernel.Address{Index: p.index, Prefix: prefix})
			}
		}
	}
	return want
}

func hasIPv6(addresses []kernel.Address) bool {
	return slices.ContainsFunc(addresses, func(a kernel.Address) bool { return a.Prefix.Addr().Is6() })
}

func (f *Fabric) compareAddresses(h *host, got reading, d *differences) {
	wanted := f.addresses(h)
	missing := make(map[kernel.Address]bool, len(wanted))
	for _, a := range wanted {
		missing[a] = true
	}
	for _, a := range got.addresses {
		dev := h.devName(got, a.Index)
		away := request(passAddress, func(b *kernel.Batch) { b.DeleteAddress(dev, a.Index, a.Prefix) })
		if a.Tentative {
			again := request(passAddress, func(b *kernel.Batch) { b.AddAddress(dev, a.Index, a.Prefix) })
			d.add(h.at(dev), []fix{away, again}, "add address %s to %s:%s: kernel has it as tentative",
				a.Prefix, h.name, dev)
		}
		a.Tentative = false
		beside := h.managed && dev == plan.ManagementName
		if !missing[a] && !beside && !a.Prefix.Addr().IsLoopback() {
			d.add(h.at(dev), []fix{away}, "add address to %s:%s: kernel has %s, want no such address",
				h.name, dev, a.Prefix)
		}
		delete(missing, a)
	}
	for _, a := range wanted {
		if !missing[a] {
			continue
		}
		dev := h.portName(a.Index)
		add := request(passAddress, func(b *kernel.Batch) { b.AddAddress(dev, a.Index, a.Prefix) })
		d.add(h.at(dev), []fix{add}, "add address %s to %s:%s: kernel has no such address", a.Prefix, h.name,
			dev)
	}
}

// compareLocal checks whether the host accepts packets to its addresses.
func (f *Fabric) compareLocal(h *host, got reading, d *differences) {
	for _, a := range f.addresses(h) {
		l := got.byIndex[a.Index]
		if got.local[a.Prefix.Addr()] || !l.Up || !l.Carrier || !slices.Contains(got.addresses, a) {
			continue
		}
		dev := h.portName(a.Index)
		again := request(passAddress, func(b *kernel.Batch) {
			b.DeleteAddress(dev, a.Index, a.Prefix)
			b.AddAddress(dev, a.Index, a.Prefix)
		})
		d.wait(h.at(dev), []fix{again}, "add address %s to %s:%s: kernel has no local route to it", a.Prefix,
			h.name, dev)
	}
}

// portName returns the planned name of an interface.
func (h *host) portName(index int) string {
	for name, i := range h.portIndex {
		if i == index {
			return name
		}
	}
	return fmt.Sprintf("if%d", index)
}

// devName returns the planned name of an interface, or its current one.
func (h *host) devName(got reading, index int) string {
	for name, i := range h.portIndex {
		if i == index {
			return name
		}
	}
	return got.byIndex[index].Name
}

func (f *Fabric) compareNeighbors(h *host, got reading, d *differences) {
	type key struct {
		index int
		addr  netip.Addr
	}
	have := map[key]kernel.MAC{}
	for _, n := range got.neighbors {
		have[key{n.Index, n.Addr}] = n.MAC
	}
	for _, p := range h.ports {
		for _, n := range p.Neighbors {
			mac, exists := have[key{p.index, n.Addr}]
			want := kernel.Neighbor{Index: p.index, Addr: n.Addr, MAC: kernel.MAC(n.MAC)}
			add := request(passAddress, func(b *kernel.Batch) { b.AddNeighbor(p.Name, want) })
			switch {
			case f.cut(p): // the kernel forgets them when an interface goes down
			case !exists:
				d.add(h.at(p.Name), []fix{add}, "add neighbour %s to %s:%s: kernel has no such neighbour",
					n.Addr, h.name, p.Name)
			case mac != want.MAC:
				d.add(h.at(p.Name), []fix{add}, "add neighbour %s to %s:%s: kernel has %s, want %s", n.Addr,
					h.name, p.Name, kernel.MACText(mac), kernel.MACText(want.MAC))
			}
			delete(have, key{p.index, n.Addr})
		}
	}
	for _, n := range got.neighbors {
		if _, left := have[key{n.Index, n.Addr}]; left && n.Index != loopbackIndex &&
			n.Index != bridgeIndex && !n.Addr.IsMulticast() {
			dev := h.devName(got, n.Index)
			away := request(passAddress, func(b *kernel.Batch) { b.DeleteNeighbor(dev, n) })
			switch _, mac, known := h.resolve(n.Index, n.Addr); {
			case !known:
				d.add(h.at(dev), []fix{away}, "add neighbour to %s:%s: kernel has %s, want no such neighbour",
					h.name, dev, n.Addr)
			case mac != n.MAC: // the next packet needs it again
				d.add(h.at(dev), []fix{away}, "add neighbour %s to %s:%s: kernel has %s, want %s", n.Addr,
					h.name, dev, kernel.MACText(n.MAC), kernel.MACText(mac))
			}
		}
	}
}

// routeKey is the key by which the kernel finds a route. There may be several routes with one key
// and different metrics.
type routeKey struct {
	dst   netip.Prefix
	table int
}

func keyOf(r kernel.Route) routeKey {
	if r.Table == 0 {
		r.Table = kernel.MainTable
	}
	return routeKey{r.Dst.Masked(), r.Table}
}

func (f *Fabric) compareRoutes(h *host, got reading, d *differences) {
	have := make(map[routeKey][]kernel.Route, len(got.routes))
	for _, r := range got.routes {
		k := keyOf(r)
		have[k] = append(have[k], r)
	}
	for _, want := range h.routes {
		k := keyOf(want)
		found := have[k]
		if f.crossesCut(h, want) { // missing, or without the path that is down
			delete(have, k)
			continue
		}
		if i := slices.IndexFunc(found, func(r kernel.Route) bool { return sameRoute(r, want) }); i >= 0 {
			have[k] = slices.Delete(found, i, i+1)
			continue
		}
		// Routes in its place are deleted first: some would otherwise stay beside it.
		wrong := slices.DeleteFunc(found, func(r kernel.Route) bool { return r.Kernel })
		instead := request(passRoute, func(b *kernel.Batch) {
			for _, r := range wrong {
				b.DeleteRoute(h.named(got, r))
			}
			b.AddRoute(want)
		})
		delete(have, k)
		if len(wrong) == 0 {
			d.add(h.name, []fix{instead}, "add route %s to %s: kernel has no such route", want, h.name)
		} else {
			d.add(h.name, []fix{instead}, "add route to %s: kernel has %s, want %s", h.name,
				h.named(got, wrong[0]), want)
		}
	}
	f.compareStrayRoutes(h, got, have, d)
}

func (f *Fabric) compareStrayRoutes(h *host, got reading, left map[routeKey][]kernel.Route, d *differences) {
	for _, r := range got.routes { // in the kernel's order, not the map's
		for _, r := range left[keyOf(r)] {
			beside := h.managed && len(r.Hops) == 1 && h.devName(got, r.Hops[0].Index) == plan.ManagementName
			if r.Kernel || beside || r.Daemon && h.learned != nil {
				continue
			}
			away := request(passRoute, func(b *kernel.Batch) { b.DeleteRoute(h.named(got, r)) })
			d.add(h.name, []fix{away}, "add route to %s: kernel has %s, want no such route", h.name,
				h.named(got, r))
		}
		delete(left, keyOf(r))
	}
}

// compareConnected looks for the routes that the kernel adds for an address. Without such a route,
// packets to the link's prefix would take another route.
func (f *Fabric) compareConnected(h *host, got reading, d *differences) {
	have := map[netip.Prefix][]int{} // interfaces by destination
	for _, r := range got.routes {
		if r.Kernel && len(r.Hops) == 1 && keyOf(r).table == kernel.MainTable {
			have[r.Dst] = append(have[r.Dst], r.Hops[0].Index)
		}
	}
	for _, p := range h.ports {
		for _, prefix := range p.Addrs {
			there := slices.Contains(got.addresses, kernel.Address{Index: p.index, Prefix: prefix})
			if prefix.IsSingleIP() || !there || !got.byIndex[p.index].Up ||
				slices.Contains(have[prefix.Masked()], p.index) {
				continue
			}
			route := kernel.Route{Dst: prefix.Masked(), Src: prefix.Addr(), Kernel: true,
				Hops: []kernel.NextHop{{Index: p.index, Dev: p.Name}}}
			if prefix.Addr().Is6() {
				route.Src = netip.Addr{}
			}
			add := request(passRoute, func(b *kernel.Batch) { b.AddRoute(route) })
			d.add(h.name, []fix{add}, "add route %s to %s: kernel has no such route", route, h.name)
		}
	}
}

// inet6 reports whether the plan gives the host an IPv6 address.
func (h *host) inet6() bool {
	return hasIPv6(h.loopbacks) || slices.ContainsFunc(h.ports, port.inet6)
}

func (p port) inet6() bool {
	return slices.ContainsFunc(p.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
}

func (f *Fabric) crossesCut(h *host, r kernel.Route) bool {
	return slices.ContainsFunc(h.ports, func(p port) bool {
		return f.cut(p) && slices.ContainsFunc(r.Hops, func(hop kernel.NextHop) bool {
			return hop.Index == p.index
		})
	})
}

// named fills in the interface names of a route that was read.
func (h *host) named(got reading, r kernel.Route) kernel.Route {
	r.Hops = slices.Clone(r.Hops)
	for i := range r.Hops {
		r.Hops[i].Dev = h.devName(got, r.Hops[i].Index)
	}
	return r
}

// sameRoute ignores the order of next hops: IPv6 has its own order.
func sameRoute(got, want kernel.Route) bool {
	sorted := func(hops []kernel.NextHop) []kernel.NextHop {
		hops = slices.Clone(hops)
		for i := range hops {
			hops[i].Dev = ""
		}
		slices.SortFunc(hops, func(a, b kernel.NextHop) int {
			if a.Index != b.Index {
				return a.Index - b.Index
			}
			return a.Via.Compare(b.Via)
		})
		return hops
	}
	return got.Unicast() && got.RTOMin == want.RTOMin &&
		(got.Src == want.Src || !want.Src.IsValid() && got.Kernel) &&
		slices.Equal(sorted(got.Hops), sorted(want.Hops))
}

// compareRules compares the rules of the plan and the default rules of a namespace. Without the
// default rules the main table is not used.
func compareRules(h *host, got []kernel.Rule, d *differences) {
	wanted := kernel.DefaultRules()
	defaults := len(wanted)
	for i, want := range append(wanted, h.rules...) {
		if at := slices.Index(got, want); at >= 0 {
			got = slices.Delete(got, at, at+1)
			continue
		}
		if i < defaults && want.From.Addr().Is6() && !h.inet6() {
			continue // the kernel may not support it
		}
		add := request(passRoute, func(b *kernel.Batch) { b.AddRule(want) })
		d.add(h.name, []fix{add}, "add rule from %s lookup %d to %s: kernel has no such rule", want.From,
			want.Table, h.name)
	}
	for _, r := range got {
		away := request(passRoute, func(b *kernel.Batch) { b.DeleteAnyRule(r) })
		d.add(h.name, []fix{away}, "add rule to %s: kernel has priority %d from %s lookup %d, want no "+
			"such rule", h.name, r.Priority, r.From, r.Table)
	}
}
