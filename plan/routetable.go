package plan

import (
	"iter"
	"net/netip"
	"slices"
)

// RouteTable is the routes of a switch. It is compact, because a torus of 1,024 switches has six
// million routes. Routes from the compiler are blocks of addresses. Each block has the number of a
// set of next hops, which many blocks share. The JSON of a RouteTable is a list of routes. A
// RouteTable does not change after it is made.
type RouteTable struct {
	list   []Route // routes that do not come from the compiler
	blocks []routedBlock
	shape  *routeShape // shared by the blocks
}

// routedBlock is a route of each family to an aligned block of addresses.
type routedBlock struct {
	start uint32 // offset in the pool, which has at most 2^32 IPv4 addresses
	set   uint32 // number of the set of next hops
	pool  uint8
	bits  uint8 // length of the host part
}

// routeShape holds the values that the blocks of a table share.
type routeShape struct {
	pools []*pool
	src   [2]netip.Addr // source address of packets of the switch itself
	sets  [][2][]NextHop
}

// NewRouteTable returns a table of the given routes.
func NewRouteTable(routes []Route) RouteTable { return RouteTable{list: routes} }

// Len returns the number of routes.
func (t RouteTable) Len() int { return len(t.list) + 2*len(t.blocks) }

// IsZero reports whether the table is empty. encoding/json calls it.
func (t RouteTable) IsZero() bool { return t.Len() == 0 }

// All returns the routes, IPv4 first. Next hops are shared, and callers must not change them.
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

// withShared returns the routes, each with the result of share for its table, source and next hops.
// share is called once for all routes of blocks with one set of next hops, and once for each route
// of a list.
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

// List returns the routes of All in a new list.
func (t RouteTable) List() []Route { return slices.AppendSeq(make([]Route, 0, t.Len()), t.All()) }

// Choice reports whether a route has several next hops.
func (t RouteTable) Choice() bool { return len(t.Choices()) > 0 }

// Choices returns the ports that are one of several next hops of a route.
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
	seen := map[uint32]bool{} // sets of next hops
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

// tableMaker makes the route tables of switches one after the other and reuses its memory.
type tableMaker struct {
	blocks []routedBlock
	set    []int32 // by way of the region; -1 if not known
	ports  []int
	key    []byte
	known  map[string]uint32 // numbers of sets, by their ports
	sets   [][]int           // the ports of each set
}

// reset starts the table of a switch.
func (m *tableMaker) reset(ways int) {
	m.blocks, m.sets, m.known = m.blocks[:0], m.sets[:0], map[string]uint32{}
	m.set = slices.Grow(m.set[:0], ways)[:ways]
	for i := range m.set {
		m.set[i] = -1
	}
}

// setOf returns the number of a set of ports.
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

// add appends a block, in the order of pools and addresses, and joins it with earlier blocks. Two
// halves of one aligned block that leave over the same ports become one route to the whole block.
// No address changes its path, and no address without a route gets one.
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
