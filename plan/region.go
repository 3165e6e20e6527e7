package plan

import (
	"net/netip"
	"slices"
)

// region is a block of addresses behind the same switches.
type region struct {
	pool  *pool
	block block
	// at holds the switches that deliver to the region. distance is the result of distances for
	// them.
	at       []int
	distance []int
	// way is the number of the distances. Regions behind the same switches have the same number.
	way int
	// nodes holds the nodes whose loopbacks the region contains, and starts the offsets of these.
	nodes  []int
	starts []uint64
}

// entry is a route to a block over a set of the device's interfaces.
type entry struct {
	pool   *pool
	block  block
	ifaces []int
}

// aggregate joins routes: two halves of one aligned block that leave over the same interfaces
// become one route to the whole block. No address changes its path, and no address without a route
// gets one. The entries are disjoint. The result is in the order of its pools and addresses.
func aggregate(entries []entry, order []*pool) []entry {
	slices.SortStableFunc(entries, func(a, b entry) int {
		if a.pool != b.pool {
			return slices.Index(order, a.pool) - slices.Index(order, b.pool)
		}
		switch {
		case a.block.start < b.block.start:
			return -1
		case a.block.start > b.block.start:
			return 1
		}
		return 0
	})
	var merged []entry
	for _, e := range entries {
		merged = append(merged, e)
		for len(merged) > 1 {
			left, right := merged[len(merged)-2], merged[len(merged)-1]
			if left.pool != right.pool || left.block.size != right.block.size ||
				left.block.start+left.block.size != right.block.start ||
				left.block.start%(2*left.block.size) != 0 ||
				!slices.Equal(left.ifaces, right.ifaces) {
				break
			}
			left.block.size *= 2
			merged = append(merged[:len(merged)-2], left)
		}
	}
	return merged
}

// gateway returns the next hop of routes through an interface: its addresses of both families, and
// the weight of the link.
type gateway func(iface int) (via [2]netip.Addr, weight int)

// routes turns entries into routes of both families, IPv4 first. src holds the two source addresses
// of packets that the device originates. A zero address means that of the outgoing interface.
func routes(entries []entry, ifaces []Interface, gateway gateway, table int,
	src func(entry) [2]netip.Addr) []Route {
	all := make([]Route, 0, 2*len(entries))
	for family := range 2 {
		for _, e := range entries {
			all = append(all, Route{
				Dst:      e.pool.addrs(e.block.start, e.block.hostBits())[family],
				Table:    table,
				Src:      src(e)[family],
				NextHops: nextHops(e.ifaces, ifaces, gateway, family),
			})
		}
	}
	return all
}

// nextHops sets weights only if they differ.
func nextHops(through []int, ifaces []Interface, gateway gateway, family int) []NextHop {
	hops := make([]NextHop, len(through))
	differ := false
	for i, iface := range through {
		via, weight := gateway(iface)
		hops[i] = NextHop{Via: via[family], Dev: ifaces[iface].Name, Weight: weight}
		differ = differ || weight != hops[0].Weight
	}
	for i := range hops {
		if !differ || hops[i].Weight == 1 {
			hops[i].Weight = 0
		}
	}
	return hops
}
