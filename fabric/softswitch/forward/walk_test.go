package forward

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

func shapes(t *testing.T) map[string]*plan.Plan {
	return map[string]*plan.Plan{
		"single":       generated(t, "single-switch", "hosts=9"),
		"leaf-spine":   generated(t, "leaf-spine", "leaves=5", "spines=3", "hosts-per-leaf=3"),
		"fat-tree 4":   generated(t, "fat-tree", "k=4"),
		"fat-tree 6":   generated(t, "fat-tree", "k=6"),
		"rails":        generated(t, "rail-optimized", "servers=8", "rails=4"),
		"rails spines": generated(t, "rail-optimized", "servers=8", "rails=4", "spines=2"),
		"hpn":          generated(t, "hpn", "segments=2", "servers=3", "rails=2", "aggs=2"),
		"ring":         generated(t, "torus", "x=5"),
		"torus":        generated(t, "torus", "x=4", "y=4"),
		"torus 3d":     generated(t, "torus", "x=3", "y=2", "z=3", "hosts-per-switch=2"),
		"dual-homed": wired(t, "a b c", "s1 s2 t", "a -- s1", "a -- s2", "b -- s1", "c -- s2", "s1 -- t",
			"s2 -- t"),
		"parallel links": wired(t, "a b", "s t", "a -- s", "a -- s", "b -- t", "s -- t", "s -- t", "s -- t"),
		"chain": wired(t, "a b c", "s1 s2 s3 s4", "a -- s1", "b -- s2", "c -- s4", "s1 -- s2",
			"s2 -- s3", "s3 -- s4"),
	}
}

// TestTablesAreThePlan sends packets from every NIC to every address of every node and switch, over
// every path. At each switch it sends as many packets as the plan has next hops. They must leave by
// all of these next hops in turn, and by no others. The oracle reads the plan's routes from end to
// end.
func TestTablesAreThePlan(t *testing.T) {
	for name, p := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			w := &walk{fabric: newFabric(t, p, spec.RoundRobin), seen: map[string]string{}}
			for i := range p.Nodes {
				from := &p.Nodes[i]
				for nic := range from.NICs {
					for dst, owner := range w.owner {
						if owner != from.Name {
							w.send(from, nic, dst)
						}
					}
				}
			}
			if w.hops < len(p.Nodes) {
				t.Fatalf("%d hops walked: too few to tell anything", w.hops)
			}
			if used := w.pool.Used(); used != 0 {
				t.Errorf("%d packets are left", used)
			}
		})
	}
}

type walk struct {
	*fabric
	seen map[string]string // where a packet for an address ends that enters a switch
	hops int
}

func (w *walk) send(from *plan.Node, nic int, dst netip.Addr) {
	family := 0
	if dst.Is6() {
		family = 1
	}
	d, at := w.from(from, nic, datagram{src: from.NICs[nic].Addrs[family].Addr(), dst: dst, srcPort: 1,
		dstPort: 2, protocol: 132})
	w.enter(d, at)
}

// enter follows a packet from a switch's port on over all paths, and returns its receiver, which
// must be the same on all paths.
func (w *walk) enter(d datagram, at plan.End) string {
	memo := fmt.Sprint(at, d.dst)
	if end, known := w.seen[memo]; known {
		if end == "" {
			w.t.Fatalf("a packet for %s comes back to %v", d.dst, at)
		}
		return end
	}
	w.seen[memo] = ""
	want := w.planned(at.Node, d.dst)
	var got []string
	ends := map[string]bool{}
	for range max(1, len(want)) {
		one := d.packet(w.pool)
		decision := w.tables[at.Node].Decide(0, one, w.port(at))
		if decision.Action != Send {
			if decision.Reply != nil {
				w.pool.Put(decision.Reply)
			}
			w.pool.Put(one)
			ends[decision.Reason.String()+" "+w.localTo(at.Node, d.dst)] = true
			continue
		}
		w.hops++
		port := &w.plan.Switch(at.Node).Ports[decision.Port]
		got = append(got, port.Name)
		w.checkRewrite(d, one, at.Node, port)
		next := w.far[plan.End{Node: at.Node, Port: port.Name}]
		w.pool.Put(one)
		if w.plan.Node(next.Node) != nil {
			if w.owner[d.dst] != next.Node {
				w.t.Fatalf("a packet for %s of %s reaches %v", d.dst, w.owner[d.dst], next)
			}
			ends[next.Node] = true
			continue
		}
		onward := d
		onward.srcMAC, onward.dstMAC = port.MAC, w.plan.Switch(next.Node).Ports[w.port(next)].MAC
		ends[w.enter(onward, next)] = true
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s to %s: ports %v, the plan has %v", at.Node, d.dst, got, want)
	}
	if len(ends) != 1 {
		w.t.Fatalf("%s to %s: paths end at %v", at.Node, d.dst, ends)
	}
	for end := range ends {
		w.seen[memo] = end
	}
	return w.seen[memo]
}

// localTo marks that a switch has the address.
func (w *walk) localTo(sw string, dst netip.Addr) string {
	if w.owner[dst] == sw {
		return sw
	}
	return "nowhere"
}

// checkRewrite requires the frame that the next station expects.
func (w *walk) checkRewrite(d datagram, one *packet.Packet, sw string, port *plan.Interface) {
	wellFormed(w.t, sw, one)
	far := w.far[plan.End{Node: sw, Port: port.Name}]
	var mac plan.MAC
	if node := w.plan.Node(far.Node); node != nil {
		for _, nic := range node.NICs {
			if nic.Name == far.Port {
				mac = nic.MAC
			}
		}
	} else {
		mac = w.plan.Switch(far.Node).Ports[w.port(far)].MAC
	}
	frame := wire.Ethernet(one.Data)
	if frame.Dst() != wire.MAC(mac) || frame.Src() != wire.MAC(port.MAC) {
		w.t.Fatalf("%s sends to %v from %s to %s, want from %s to %s", sw, far, frame.Src(), frame.Dst(),
			port.MAC, mac)
	}
	if one.Headers.TTL != 63 {
		w.t.Fatalf("%s sends with a TTL of %d, want 63", sw, one.Headers.TTL)
	}
}

// planned are the ports that the plan's routes have for an address: the longest
// prefix of the routes and the links' subnets.
func (w *walk) planned(name string, dst netip.Addr) []string {
	sw := w.plan.Switch(name)
	if w.owner[dst] == name {
		return nil
	}
	var best []string
	bits := -1
	for route := range sw.Routes.All() {
		if route.Dst.Contains(dst) && route.Dst.Bits() > bits {
			bits, best = route.Dst.Bits(), nil
			for _, hop := range route.NextHops {
				best = append(best, hop.Dev)
			}
		}
	}
	for _, port := range sw.Ports {
		for _, subnet := range port.Addrs {
			if subnet.Masked().Contains(dst) && subnet.Bits() > bits {
				bits, best = subnet.Bits(), []string{port.Name}
			}
		}
	}
	slices.Sort(best)
	return best
}

// TestTracerouteShowsThePlan sends packets with 1, 2, 3, ... hops to live from every node to every
// other. Each switch of the path answers from its loopback, and the answer reaches the node. The
// path is one of the plan's shortest.
func TestTracerouteShowsThePlan(t *testing.T) {
	for _, name := range []string{"leaf-spine", "fat-tree 4", "torus", "chain", "hpn"} {
		p := shapes(t)[name]
		f := newFabric(t, p, spec.Flow)
		traced := 0
		for i := range p.Nodes {
			for j := range p.Nodes {
				for family := range 2 {
					if i != j {
						traced += f.trace(&p.Nodes[i], &p.Nodes[j], family)
					}
				}
			}
		}
		if traced < 4*len(p.Nodes) || f.pool.Used() != 0 {
			t.Errorf("%s: %d answers, %d packets left", name, traced, f.pool.Used())
		}
	}
}

func (f *fabric) trace(from, to *plan.Node, family int) (answers int) {
	f.t.Helper()
	probe := datagram{src: from.Loopbacks[family].Addr(), dst: to.Loopbacks[family].Addr(), srcPort: 33000,
		dstPort: 33434, payload: make([]byte, 24)}
	var path, answered []string
	for hops := uint8(1); ; hops++ {
		probe.ttl = hops
		d, at := f.from(from, 0, probe)
		end, crossed, last := f.carry(d.packet(f.pool), at)
		if end.Node == to.Name {
			path = crossed
			f.pool.Put(last.Reply)
			break
		}
		h := &last.Reply.Headers
		if end.Node != from.Name || last.Reason != TTLExceeded || h.DstAddr() != probe.src {
			f.t.Fatalf("from %s to %s with %d hops: ends at %v for %s", from.Name, to.Name, hops, end,
				last.Reason)
		}
		sw := f.plan.Switch(f.owner[h.SrcAddr()])
		if sw == nil || sw.Loopbacks[family].Addr() != h.SrcAddr() {
			f.t.Fatalf("hop %d answers from %s, which is no loopback of a switch", hops, h.SrcAddr())
		}
		answered = append(answered, sw.Name)
		answers++
		f.pool.Put(last.Reply)
	}
	if !slices.Equal(path, answered) {
		f.t.Fatalf("from %s to %s: traceroute shows %v, packets go over %v", from.Name, to.Name, answered,
			path)
	}
	return answers
}

// TestLookup compares the table with a search from end to end over random
// prefixes, nested, adjacent and at the ends of the address space.
func TestLookup(t *testing.T) {
	for round := range uint64(60) {
		r := newRandom(round)
		prefixes := map[netip.Prefix]*entry{}
		v4 := round%2 == 0
		random := func() netip.Addr {
			var a [16]byte
			for i := range a {
				a[i] = byte(r.Uint64() & 3 * 85) // 0, 85, 170, 255: prefixes meet often
			}
			if v4 {
				return netip.AddrFrom4([4]byte(a[:4]))
			}
			return netip.AddrFrom16(a)
		}
		for range r.IntN(60) + 1 {
			a := random()
			prefix := netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked()
			if r.IntN(4) == 0 {
				prefix = netip.PrefixFrom(a, a.BitLen())
			}
			prefixes[prefix] = &entry{}
		}
		lowest := key{}
		if v4 {
			lowest = key{0, 0xffff_0000_0000}
		}
		table := newLookupTable(prefixes, lowest)
		rt := &router{v4: table, v6: table}
		for range 2000 {
			a := random()
			if r.IntN(3) == 0 {
				a = a.Next()
			}
			if !a.IsValid() {
				continue
			}
			var holding []netip.Prefix
			for prefix := range prefixes {
				if prefix.Contains(a) {
					holding = append(holding, prefix)
				}
			}
			slices.SortFunc(holding, func(x, y netip.Prefix) int { return cmp.Compare(y.Bits(), x.Bits()) })
			octets := a.As16()
			got := rt.lookup(&octets, v4)
			for _, want := range holding {
				if got != prefixes[want] {
					t.Fatalf("round %d: %s is not found in %s", round, a, want)
				}
				got = got.shorter
			}
			if got != nil {
				t.Fatalf("round %d: %s is found in more than %v", round, a, holding)
			}
		}
	}
}
