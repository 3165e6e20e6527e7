package forward

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// spines is a leaf with n equal-cost ways to the nodes of another one. Ports 0 to
// n-1 of the leaf do not lead to its node.
func spines(t testing.TB, n int) *plan.Plan {
	return generated(t, "leaf-spine", "leaves=2", fmt.Sprintf("spines=%d", n), "hosts-per-leaf=1")
}

// leaf sends packets of h0 at leaf1 to h1.
type leaf struct {
	t     testing.TB
	plan  *plan.Plan
	sw    plan.Switch
	pool  *packet.Pool
	table Table
	in    int // the port of h0
	up    []int
	d     datagram
}

func newLeaf(t testing.TB, p *plan.Plan, balance string, waiting Depths, change func(*plan.Switch)) *leaf {
	t.Helper()
	l := &leaf{t: t, plan: p, pool: newPool(t), sw: *p.Switch(p.Switches[0].Name)}
	l.sw.Ports = slices.Clone(l.sw.Ports)
	l.sw.Soft = &plan.SoftSwitch{LoadBalance: balance, FlowletGap: 50_000}
	if change != nil {
		change(&l.sw)
	}
	var err error
	if l.table, err = New(p, &l.sw, l.pool, waiting); err != nil {
		t.Fatal(err)
	}
	h0, h1 := &p.Nodes[0], &p.Nodes[1]
	for i, port := range l.sw.Ports {
		if port.Peer == h0.Name+":"+h0.NICs[0].Name {
			l.in = i
		} else {
			l.up = append(l.up, i)
		}
	}
	l.d = datagram{src: h0.Loopbacks[0].Addr(), dst: h1.Loopbacks[0].Addr(), srcMAC: h0.NICs[0].MAC,
		dstMAC: l.sw.Ports[l.in].MAC, ordinal: 1}
	return l
}

// path is the index in up of the way of a packet.
func (l *leaf) path(now clock.Time, d datagram) int {
	l.t.Helper()
	one := d.packet(l.pool)
	defer l.pool.Put(one)
	got := l.table.Decide(now, one, l.in)
	if got.Action != Send {
		l.t.Fatalf("%+v, want it sent", got)
	}
	return slices.Index(l.up, got.Port)
}

// flow is the datagram of flow number i.
func (l *leaf) flow(i int) datagram {
	d := l.d
	d.srcPort, d.dstPort = uint16(49152+i%16384), uint16(4791+i/16384)
	d.flow = uint64(i + 1)
	return d
}

// even requires that counts are consistent with draws by weights: Pearson's chi-square, with one
// degree of freedom less than there are counts, is within five deviations.
func even(t *testing.T, what string, counts []int, weights ...int) {
	t.Helper()
	total, sum := 0, 0
	for i, c := range counts {
		total += c
		if len(weights) == 0 {
			sum++
		} else {
			sum += weights[i]
		}
	}
	chi := 0.0
	for i, c := range counts {
		w := 1
		if len(weights) > 0 {
			w = weights[i]
		}
		want := float64(total) * float64(w) / float64(sum)
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	if k := float64(len(counts) - 1); chi > k+5*math.Sqrt(2*k) {
		t.Errorf("%s: %v has a chi-square of %.0f, want about %.0f", what, counts, chi, k)
	}
}

func TestHashIsEven(t *testing.T) {
	for _, n := range []int{2, 3, 8, 17} {
		l := newLeaf(t, spines(t, n), spec.Flow, depths{}, nil)
		counts := make([]int, n)
		for i := range 20_000 {
			counts[l.path(0, l.flow(i))]++
		}
		even(t, fmt.Sprintf("%d paths", n), counts)
	}
	// Two bits of a port alone decide: nothing else differs.
	l := newLeaf(t, spines(t, 4), spec.Flow, depths{}, nil)
	counts := make([]int, 4)
	for i := range 4096 {
		d := l.d
		d.srcPort = uint16(i << 4)
		counts[l.path(0, d)]++
	}
	even(t, "ports that differ in high bits", counts)
}

// TestFlowKeepsItsPath: all that is not in the 5-tuple may change, and all that is
// in it matters.
func TestFlowKeepsItsPath(t *testing.T) {
	l := newLeaf(t, spines(t, 16), spec.Flow, depths{}, nil)
	changed := map[string]int{}
	for i := range 200 {
		d := l.flow(i)
		path := l.path(0, d)
		other := d
		other.payload, other.ttl, other.tos, other.flow, other.ordinal,
			other.dontFragment = make([]byte, 500), 9, 0x2b, 77, 9, true
		if l.path(1e9, other) != path {
			t.Fatalf("flow %d changes its path", i)
		}
		for what, change := range map[string]func(*datagram){
			"source port":      func(d *datagram) { d.srcPort++ },
			"destination port": func(d *datagram) { d.dstPort++ },
			"source":           func(d *datagram) { d.src = d.src.Next() },
		} {
			if l.path(0, d.with(change)) != path {
				changed[what]++
			}
		}
	}
	for _, what := range []string{"source port", "destination port", "source"} {
		if changed[what] < 150 { // 15/16 of 200 are 187
			t.Errorf("another %s changes the path of %d flows of 200", what, changed[what])
		}
	}
}

// TestFragmentsStayTogether: the first fragment, which has ports, takes the path
// of the others, which have none.
func TestFragmentsStayTogether(t *testing.T) {
	l := newLeaf(t, spines(t, 16), spec.Flow, depths{}, nil)
	d := l.d
	d.payload = make([]byte, 64)
	d.more = true
	paths := map[int]bool{}
	for i := range 50 {
		first := d
		first.srcPort = uint16(i)
		paths[l.path(0, first)] = true
		later := d
		later.offset, later.more = 72, i%2 == 0
		paths[l.path(0, later)] = true
	}
	if len(paths) != 1 {
		t.Errorf("fragments between two nodes take %d paths", len(paths))
	}
}

// TestSeedsAreIndependent compares two leaves whose seeds differ: the flows of
// each path of the one are spread over all paths of the other. With equal seeds,
// all of them take one.
func TestSeedsAreIndependent(t *testing.T) {
	const n, flows = 4, 40_000
	p := spines(t, n)
	at := func(seed uint32) *leaf {
		return newLeaf(t, p, spec.Flow, depths{}, func(sw *plan.Switch) { sw.HashSeed = seed })
	}
	for _, pair := range [][2]uint32{{1, 2}, {0, 1}, {0x80000000, 0}, {7, 8},
		{p.Switches[0].HashSeed, p.Switches[1].HashSeed}} {
		one, two := at(pair[0]), at(pair[1])
		both := make([]int, n*n)
		for i := range flows {
			d := one.flow(i)
			both[one.path(0, d)*n+two.path(0, d)]++
		}
		even(t, fmt.Sprintf("seeds %v", pair), both)
	}
	one, two := at(5), newLeaf(t, p, spec.Polarised, depths{}, func(sw *plan.Switch) { sw.HashSeed = 5 })
	for i := range 2000 {
		if d := one.flow(i); one.path(0, d) != two.path(0, d) {
			t.Fatalf("flow %d: equal seeds, but other paths", i)
		}
	}
}

// TestPolarisedFabric sends flows over two tiers. If all switches have one seed, the second tier
// chooses as the first did, so that only one of its uplinks is ever used. With different seeds, all
// are used.
func TestPolarisedFabric(t *testing.T) {
	for balance, want := range map[string]int{spec.Polarised: 2, spec.Flow: 4} {
		p := generated(t, "fat-tree", "k=4") // edge and aggregation have two ways up each: 4 cores
		if balance == spec.Polarised {
			for i := range p.Switches {
				p.Switches[i].HashSeed = 1
			}
		}
		f := newFabric(t, p, balance)
		from, to := &p.Nodes[0], &p.Nodes[len(p.Nodes)-1]
		cores := map[string]int{}
		for i := range 400 {
			d, at := f.from(from, 0, datagram{src: from.Loopbacks[0].Addr(), dst: to.Loopbacks[0].Addr(),
				srcPort: uint16(49152 + i), dstPort: 4791})
			end, path, last := f.carry(d.packet(f.pool), at)
			if end.Node != to.Name || len(path) != 5 {
				t.Fatalf("a packet ends at %v over %v", end, path)
			}
			cores[path[2]]++
			f.pool.Put(last.Reply)
		}
		if len(cores) != want {
			t.Errorf("%s: flows use %d cores, want %d: %v", balance, len(cores), want, cores)
		}
	}
}

func TestWeights(t *testing.T) {
	p := spines(t, 3)
	weigh := func(sw *plan.Switch) {
		routes := sw.Routes.List()
		for i := range routes {
			routes[i].NextHops = slices.Clone(routes[i].NextHops)
			for k := range routes[i].NextHops {
				routes[i].NextHops[k].Weight = []int{5, 1, 2}[k%3]
			}
		}
		sw.Routes = plan.NewRouteTable(routes)
	}
	for _, balance := range []string{spec.Flow, spec.Spray, spec.Flowlet} {
		l := newLeaf(t, p, balance, depths{}, weigh)
		counts := make([]int, 3)
		for i := range 20_000 {
			d := l.flow(i)
			d.ordinal = uint64(i)
			counts[l.path(clock.Time(i)*1e6, d)]++
		}
		even(t, balance, counts, 5, 1, 2)
	}
	// Round robin: in each eight turns exactly 5, 1 and 2, spread out.
	l := newLeaf(t, p, spec.RoundRobin, depths{}, weigh)
	for round := range 3 {
		var order []int
		counts := make([]int, 3)
		for range 8 {
			path := l.path(0, l.d)
			order = append(order, path)
			counts[path]++
		}
		if !slices.Equal(counts, []int{5, 1, 2}) || order[0] == order[1] && order[1] == order[2] {
			t.Errorf("round %d: %v", round, order)
		}
	}
	// Least queue: bytes count by weight, 500:100:200 is a tie.
	waiting := make(depths, len(l.sw.Ports))
	l = newLeaf(t, p, spec.LeastQueue, waiting, weigh)
	for path, bytes := range map[int][3]int64{0: {499, 100, 200}, 1: {500, 99, 200}, 2: {500, 100, 199}} {
		for k, port := range l.up {
			waiting[port] = bytes[k]
		}
		for i := range 20 {
			if got := l.path(0, l.flow(i)); got != path {
				t.Errorf("queues %v: path %d, want %d", bytes, got, path)
			}
		}
	}
}

func TestSpray(t *testing.T) {
	const n, packets = 4, 40_000
	l := newLeaf(t, spines(t, n), spec.Spray, depths{}, nil)
	counts, pairs, paths := make([]int, n), make([]int, n*n), make([]int, packets)
	for i := range packets {
		d := l.flow(1)
		d.ordinal = uint64(i + 1)
		paths[i] = l.path(0, d)
		counts[paths[i]]++
		if i > 0 {
			pairs[paths[i-1]*n+paths[i]]++
		}
	}
	even(t, "one flow", counts)
	even(t, "neighbours", pairs)
	// The same packets among others take the same paths.
	again := newLeaf(t, spines(t, n), spec.Spray, depths{}, nil)
	for i := range 2000 {
		other := again.flow(2 + i%9)
		other.ordinal = uint64(i)
		again.path(0, other)
		d := again.flow(1)
		d.ordinal = uint64(i + 1)
		if again.path(clock.Time(i), d) != paths[i] {
			t.Fatalf("packet %d takes another path among others", i)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	l := newLeaf(t, spines(t, 5), spec.RoundRobin, depths{}, nil)
	for i := range 100 {
		if got := l.path(0, l.flow(i)); got != i%5 {
			t.Fatalf("packet %d takes path %d", i, got)
		}
	}
}

func TestLeastQueue(t *testing.T) {
	waiting := make(depths, 16)
	l := newLeaf(t, spines(t, 4), spec.LeastQueue, waiting, nil)
	for round := range 100 {
		for k, port := range l.up {
			waiting[port] = int64(1000 + (k*7+round*3)%11*100)
		}
		least := int64(math.MaxInt64)
		for _, port := range l.up {
			least = min(least, waiting[port])
		}
		if got := l.path(0, l.flow(round)); waiting[l.up[got]] != least {
			t.Fatalf("path %d has %d bytes waiting, the least is %d", got, waiting[l.up[got]], least)
		}
	}
	clear(waiting)
	counts := make([]int, 4)
	for i := range 8000 {
		counts[l.path(0, l.flow(i))]++
	}
	even(t, "an idle switch", counts)
	// Balls into the emptier bin: with every packet counted, queues stay level.
	for i := range 10_000 {
		waiting[l.up[l.path(0, l.flow(i))]] += 1000
	}
	for _, port := range l.up {
		if waiting[port] != 2_500_000 {
			t.Errorf("%v wait, want 2.5 MB each", waiting)
		}
	}
}

// TestFlowlets: a flow keeps its path while it pauses for no longer than the gap, and draws a new
// path afterwards. With two paths half of the new ones are the old one.
func TestFlowlets(t *testing.T) {
	const n = 4
	l := newLeaf(t, spines(t, n), spec.Flowlet, depths{}, nil)
	now := clock.Time(0)
	ordinal := uint64(0)
	path := func(flow int, after time.Duration) int {
		now = now.Add(after)
		ordinal++
		d := l.flow(flow)
		d.ordinal = ordinal
		return l.path(now, d)
	}
	counts, pairs, before := make([]int, n), make([]int, n*n), -1
	for range 8000 {
		first := path(1, 50_001)
		for range 3 {
			if got := path(1, 50_000); got != first {
				t.Fatalf("a flowlet moves from path %d to %d", first, got)
			}
		}
		counts[first]++
		if before >= 0 {
			pairs[before*n+first]++
		}
		before = first
	}
	even(t, "flowlets", counts)
	even(t, "neighbours", pairs)
	// A path that goes down is left at once.
	kept := path(2, 1)
	l.table.SetPortUp(l.up[kept], false)
	if got := path(2, 1); got == kept {
		t.Error("a flowlet stays on a link that is down")
	}
}

// TestLinksThatAreDown leave the set, come back, and when all are down the packet is refused.
// Nothing else changes the choice among the remaining links.
func TestLinksThatAreDown(t *testing.T) {
	for _, balance := range []string{spec.Flow, spec.Polarised, spec.Flowlet, spec.Spray, spec.RoundRobin,
		spec.LeastQueue} {
		l := newLeaf(t, spines(t, 4), balance, depths{}, nil)
		for mask := range 16 {
			for k, port := range l.up {
				l.table.SetPortUp(port, mask>>k&1 == 1)
			}
			used := 0
			for i := range 300 {
				d := l.flow(i)
				d.ordinal = uint64(i + 1)
				now := clock.Time(mask)*1e9 + clock.Time(i)*1e6
				if mask == 0 {
					one := d.packet(l.pool)
					got := l.table.Decide(now, one, l.in)
					if got.Action != Reply || got.Reason != NoRoute || got.Reply.Data[34] != 3 ||
						got.Reply.Data[35] != 0 || got.Port != l.in {
						t.Fatalf("%s: with every link down: %+v", balance, got)
					}
					l.pool.Put(got.Reply)
					l.pool.Put(one)
					continue
				}
				used |= 1 << l.path(now, d)
			}
			if used != mask {
				t.Errorf("%s: links %04b are up, %04b are used", balance, mask, used)
			}
		}
	}
}

// TestShorterPrefixWhenDown: where the longest prefix has no link left, the next
// one is taken, as by a kernel that ignores routes without carrier.
func TestShorterPrefixWhenDown(t *testing.T) {
	p := wired(t, "a b c", "s t u", "a -- s", "b -- t", "c -- u", "s -- t", "s -- u", "t -- u")
	sw := *p.Switch("s")
	loopback := p.Node("b").Loopbacks[0]
	var direct plan.Route
	detour := plan.Route{Dst: defaultRoute}
	for route := range sw.Routes.All() {
		if route.Dst.Contains(loopback.Addr()) {
			direct = route
		}
		if route.Dst.Contains(p.Node("c").Loopbacks[0].Addr()) && route.Dst.Addr().Is4() {
			detour.NextHops = route.NextHops
		}
	}
	sw.Routes = plan.NewRouteTable(append(sw.Routes.List(), detour))
	pool := newPool(t)
	s, err := New(p, &sw, pool, depths{})
	if err != nil {
		t.Fatal(err)
	}
	index := func(dev string) int {
		return slices.IndexFunc(sw.Ports, func(i plan.Interface) bool { return i.Name == dev })
	}
	d := datagram{src: p.Node("a").Loopbacks[0].Addr(), dst: loopback.Addr(), dstMAC: sw.Ports[0].MAC}
	way := func() int {
		got := s.Decide(0, d.packet(pool), 0)
		if got.Action != Send {
			t.Fatalf("%+v", got)
		}
		return got.Port
	}
	first, second := index(direct.NextHops[0].Dev), index(detour.NextHops[0].Dev)
	if got := way(); got != first {
		t.Fatalf("port %d, want %d", got, first)
	}
	s.SetPortUp(first, false)
	if got := way(); got != second {
		t.Errorf("with the direct link down: port %d, want %d", got, second)
	}
	s.SetPortUp(first, true)
	if got := way(); got != first {
		t.Errorf("with the link up again: port %d, want %d", got, first)
	}
}
