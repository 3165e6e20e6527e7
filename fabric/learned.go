package fabric

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/kernel"
	"railbed/plan"
)

// learned lists the routes that a router's daemons must find.
type learned struct {
	// hops are the next hops of the plan's shortest paths to each network that another router
	// announces.
	hops map[netip.Prefix][]kernel.NextHop
	// order lists the networks, sorted.
	order []netip.Prefix
}

// setLearned removes the routes that daemons find from the routes to set, and determines what the
// daemons must find.
func (h *host) setLearned(p *plan.Plan, sw *plan.Switch) error {
	if sw.Routing == nil {
		return nil
	}
	var all []kernel.Route
	all, h.routes = h.routes, nil
	for i, r := range sw.Routes.List() {
		if !sw.Learned(r) {
			h.routes = append(h.routes, all[i])
		}
	}
	h.learned = &learned{hops: map[netip.Prefix][]kernel.NextHop{}}
	for i := range p.Switches {
		other := &p.Switches[i]
		if other.Routing == nil || other.Name == sw.Name {
			continue
		}
		for _, network := range other.Routing.Networks {
			if _, known := h.learned.hops[network]; known || slices.Contains(sw.Routing.Networks, network) {
				continue
			}
			route, found := bestRoute(all, network)
			if !found {
				return fmt.Errorf("route %s of %s: the plan has no such route", network, sw.Name)
			}
			h.learned.hops[network] = route.Hops
			h.learned.order = append(h.learned.order, network)
		}
	}
	slices.SortFunc(h.learned.order, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	return nil
}

// bestRoute returns the route to a network with the longest prefix.
func bestRoute(routes []kernel.Route, to netip.Prefix) (best kernel.Route, found bool) {
	for _, r := range routes {
		if r.Dst.Bits() <= to.Bits() && r.Dst.Contains(to.Addr()) &&
			(!found || r.Dst.Bits() > best.Dst.Bits()) {
			best, found = r, true
		}
	}
	return best, found
}

// Unlearned counts the destinations that the routers' daemons have not found, or not by all
// shortest paths, and describes the first. Links that are down do not count as paths.
func (f *Fabric) Unlearned(ctx context.Context) (count int, first string, err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	missing := make([][]string, len(f.hosts))
	position := map[*host]int{}
	for i, h := range f.hosts {
		position[h] = i
	}
	err = f.each(ctx, f.hosts, func(h *host) error {
		if h.learned == nil {
			return nil
		}
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		routes, err := conn.Routes()
		missing[position[h]] = h.unlearned(routes)
		return err
	}, func(int) {})
	for _, of := range missing {
		count += len(of)
		if first == "" && len(of) > 0 {
			first = of[0]
		}
	}
	return count, first, err
}

// unlearned compares routes with those that the daemons must find.
func (h *host) unlearned(routes []kernel.Route) []string {
	found := make(map[netip.Prefix][]kernel.NextHop, len(routes))
	for _, r := range routes {
		if r.Daemon && keyOf(r).table == kernel.MainTable {
			found[r.Dst] = r.Hops
		}
	}
	var missing []string
	for _, network := range h.learned.order {
		got, want := ways(found[network]), ways(h.learned.hops[network])
		if !slices.Equal(got, want) {
			missing = append(missing, fmt.Sprintf("%s has %d of %d paths to %s", h.name, len(got), len(want),
				network))
		}
	}
	return missing
}

// ways returns the next hops without weights, sorted by gateway and interface: FRRouting's have no
// weights.
func ways(hops []kernel.NextHop) []kernel.NextHop {
	all := make([]kernel.NextHop, len(hops))
	for i, hop := range hops {
		all[i] = kernel.NextHop{Via: hop.Via, Index: hop.Index}
	}
	slices.SortFunc(all, func(a, b kernel.NextHop) int {
		return cmp.Or(a.Index-b.Index, a.Via.Compare(b.Via))
	})
	return all
}
