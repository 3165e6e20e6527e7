package plan

import (
	"iter"
	"net/netip"
	"slices"
)

// RouteTable is the routes of a switch. It is kept small, because a torus of 1,024
// switches has six million routes: those that the compiler made are blocks of
// addresses, each with the number of a set of next hops that many of them share. Its
// JSON is a list of routes. It is not changed once it is made.
type RouteTable struct {
	list   []Route // where others made it
	blocks []routedBlock
	shape  *routeShape // of the blocks
}

// routedBlock is a route of each family to an aligned block of addresses.
type routedBlock struct {
	start uint32 // offset in the pool, which has no more IPv4 addresses
	set   uint32 // of next hops
	pool  uint8
	bits  uint8 // of the host's part
}

// routeShape is what the blocks of a table have in common.
type routeShape struct {
	pools []*pool
	src   [2]netip.Addr // of packets of the switch itself
	sets  [][2][]NextHop
}

// NewRouteTable is a table of these routes.
func NewRouteTable(routes []Route) RouteTable { return RouteTable{list: routes} }

// Len is how many routes there are.
func (t RouteTable) Len() int { return len(t.list) + 2*len(t.blocks) }

// IsZero reports whether there are none; encoding/json asks.
func (t RouteTable) IsZero() bool { return t.Len() == 0 }

// All are the routes, those of IPv4 first. Next hops are shared: callers do not change
// them.
func (t RouteTable) All() iter.Seq[Route] {
	return func(yield func(Route) bool) {
		for _, route := range t.list {
			if !yield(route) {
				return
			}
		}
		for family := range 2 {
			for _, b := range t.blocks {
				dst := t.shape.pools[b.pool].prefix(family, uint64(b.start), int(b.bits))
				if !yield(Route{Dst: dst, Src: t.shape.src[family], NextHops: t.shape.sets[b.set][family]}) {
					return
				}
			}
		}
	}
}

// withShared are the routes, each with what share returns for its table, source and next hops. Share is
// called once for all routes of blocks with one set of next hops, and for each route of a list.
func withShared[T any](t RouteTable, share func(*Route) T) iter.Seq2[Route, T] {
	return func(yield func(Route, T) bool) {
		known := map[*NextHop]T{} // by the first next hop
		for route := range t.All() {
			var first *NextHop
			if t.shape != nil && len(route.NextHops) > 0 {
				first = &route.NextHops[0]
			}
			shared, found := known[first]
			if !found {
				shared = share(&route)
			}
			if !found && first != nil {
				known[first] = shared
			}
			if !yield(route, shared) {
				return
			}
		}
	}
}

// List is All as a list of its own.
func (t RouteTable) List() []Route { return slices.AppendSeq(make([]Route, 0, t.Len()), t.All()) }

// Choice reports whether a route has several next hops.
func (t RouteTable) Choice() bool { return len(t.Choices()) > 0 }

// Choices are the ports that are one of several next hops of a route.
func (t RouteTable) Choices() map[string]bool {
	ports := map[string]bool{}
	add := func(hops []NextHop) {
		for i := 0; len(hops) > 1 && i < len(hops); i++ {
			ports[hops[i].Dev] = true
		}
	}
	for i := range t.list {
		if t.list[i].Table == 0 {
			add(t.list[i].NextHops)
		}
	}
	seen := map[uint32]bool{} // sets
	for _, b := range t.blocks {
		if !seen[b.set] {
			seen[b.set] = true
			add(t.shape.sets[b.set][0])
			add(t.shape.sets[b.set][1])
		}
	}
	return ports
}

// Equal reports whether two tables have the same routes.
func (t RouteTable) Equal(other RouteTable) bool {
	return slices.EqualFunc(t.List(), other.List(), func(a, b Route) bool {
		return a.Dst == b.Dst && a.Table == b.Table && a.Src == b.Src && slices.Equal(a.NextHops, b.NextHops)
	})
}

// tableMaker makes the routes of one switch after the other. Its memory is used again.
type tableMaker struct {
	blocks []routedBlock
	set    []int32 // by way of regions; -1 is not known
	ports  []int
	key    []byte
	known  map[string]uint32 // sets by their ports
	sets   [][]int           // the ports of each
}

// reset begins a switch's table.
func (m *tableMaker) reset(ways int) {
	m.blocks, m.sets, m.known = m.blocks[:0], m.sets[:0], map[string]uint32{}
	m.set = slices.Grow(m.set[:0], ways)[:ways]
	for i := range m.set {
		m.set[i] = -1
	}
}

// setOf is the number of a set of ports.
func (m *tableMaker) setOf(ports []int) uint32 {
	m.key = appendKey(m.key[:0], ports)
	set, known := m.known[string(m.key)]
	if !known {
		set = uint32(len(m.sets))
		m.known[string(m.key)] = set
		m.sets = append(m.sets, slices.Clone(ports))
	}
	return set
}

// add adds a block behind the ones before it, in the order of pools and addresses, and
// joins it with them: two halves of one aligned block that leave over the same ports
// become one route to the whole. No address changes its path, and none that had no
// route gets one.
func (m *tableMaker) add(b routedBlock) {
	m.blocks = append(m.blocks, b)
	for n := len(m.blocks); n > 1; n-- {
		left, right := &m.blocks[n-2], m.blocks[n-1]
		size := uint64(1) << left.bits
		if left.pool != right.pool || left.bits != right.bits || left.set != right.set ||
			uint64(left.start)+size != uint64(right.start) || uint64(left.start)%(2*size) != 0 {
			break
		}
		left.bits++
		m.blocks = m.blocks[:n-1]
	}
}
