package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
)

// generated returns a testbed of a generator with params as "k=v" words.
func generated(topology string, params ...string) *spec.Testbed {
	t := &spec.Testbed{Name: "t", Fabric: spec.Fabric{Topology: topology}}
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		var n int
		fmt.Sscan(value, &n)
		t.Fabric.Params = append(t.Fabric.Params, spec.Entry[int]{Key: key, Value: n})
	}
	return t
}

// wired returns an explicit testbed.
func wired(hosts, switches string, connect ...string) *spec.Testbed {
	t := &spec.Testbed{Name: "t", Fabric: spec.Fabric{Topology: spec.Explicit, Hosts: strings.Fields(hosts),
		Connect: connect}}
	for _, name := range strings.Fields(switches) {
		t.Fabric.Switches = append(t.Fabric.Switches, spec.Entry[spec.Switch]{Key: name})
	}
	return t
}

func mustCompile(t testing.TB, testbed *spec.Testbed) *Plan {
	t.Helper()
	p, err := Compile(testbed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var routedShapes = map[string]*spec.Testbed{
	"single":          generated("single-switch", "hosts=9"),
	"leaf-spine":      generated("leaf-spine", "leaves=2", "spines=2", "hosts-per-leaf=4"),
	"leaf-spine odd":  generated("leaf-spine", "leaves=5", "spines=3", "hosts-per-leaf=3"),
	"fat-tree 2":      generated("fat-tree", "k=2"),
	"fat-tree 4":      generated("fat-tree", "k=4"),
	"fat-tree 6":      generated("fat-tree", "k=6"),
	"rails":           generated("rail-optimized", "servers=8", "rails=4"),
	"rails spines":    generated("rail-optimized", "servers=8", "rails=4", "spines=2"),
	"hpn":             generated("hpn", "segments=2", "servers=3", "rails=2", "aggs=2"),
	"hpn one segment": generated("hpn", "segments=1", "servers=4", "rails=1", "aggs=1"),
	"ring":            generated("torus", "x=5"),
	"torus":           generated("torus", "x=4", "y=4"),
	"torus 3d":        generated("torus", "x=3", "y=2", "z=3", "hosts-per-switch=2"),
	"explicit dual-homed": wired("a b c", "s1 s2 t", "a -- s1", "a -- s2", "b -- s1", "c -- s2", "s1 -- t",
		"s2 -- t"),
	"explicit parallel": wired("a b", "s t", "a -- s", "a -- s", "b -- t", "s -- t", "s -- t", "s -- t"),
	"explicit chain": wired("a b c", "s1 s2 s3 s4", "a -- s1", "b -- s2", "c -- s4", "s1 -- s2",
		"s2 -- s3", "s3 -- s4"),
}

// TestRoutesReachEverything walks from every node, unbound and bound to each NIC, to every loopback
// and NIC address of every other node and switch, in both families.
func TestRoutesReachEverything(t *testing.T) {
	for name, testbed := range routedShapes {
		t.Run(name, func(t *testing.T) { checkRoutes(t, mustCompile(t, testbed)) })
	}
}

func checkRoutes(t testing.TB, p *Plan) {
	t.Helper()
	w, g := newWalker(p), graphOf(p)
	for _, target := range destinations(p) {
		distance := g.distancesTo(p, target.owner, target.ports)
		checkEqualCost(t, p, w, g, target, distance)
		for i := range p.Nodes {
			from := &p.Nodes[i]
			if from.Name == target.owner {
				continue
			}
			checkWalk(t, w, from.Name, netip.Addr{}, target, nearestNIC(from.NICs, distance))
			for k, rail := range from.Rails {
				own := []netip.Addr{rail.Addr4, rail.Addr6}
				checkWalk(t, w, from.Name, own[target.family], target,
					nearestNIC(from.NICs[2*k:2*k+2], distance))
			}
			for _, nic := range from.NICs {
				sw, _, _ := strings.Cut(nic.Peer, ":")
				d, reached := distance[sw]
				if !reached {
					d = -1
				}
				checkWalk(t, w, from.Name, nic.Addrs[target.family].Addr(), target, d+1)
			}
		}
	}
}

// destination is an address that must be reachable, with its owner and, for an address of a NIC or a rail,
// the only ports over which it may be reached.
type destination struct {
	addr   netip.Addr
	family int
	owner  string
	ports  []string
}

func destinations(p *Plan) []destination {
	var all []destination
	for _, n := range p.Nodes {
		for i, l := range n.Loopbacks {
			var ports []string
			if i >= 2 {
				ports = n.Rails[i/2-1].NICs
			}
			all = append(all, destination{l.Addr(), i % 2, n.Name, ports})
		}
		for _, nic := range n.NICs {
			for family, a := range nic.Addrs {
				all = append(all, destination{a.Addr(), family, n.Name, []string{nic.Name}})
			}
		}
	}
	for _, s := range p.Switches {
		for family, l := range s.Loopbacks {
			all = append(all, destination{l.Addr(), family, s.Name, nil})
		}
	}
	return all
}

// nearestNIC returns the length of the shortest path over any of the NICs, or 0 for none.
func nearestNIC(nics []Interface, distance map[string]int) int {
	best := 0
	for _, nic := range nics {
		sw, _, _ := strings.Cut(nic.Peer, ":")
		if d, reached := distance[sw]; reached && (best == 0 || d+1 < best) {
			best = d + 1
		}
	}
	return best
}

// checkWalk requires a packet to reach the destination after want links, or to be refused on the
// way if want is 0.
func checkWalk(t testing.TB, w *walker, from string, src netip.Addr, to destination, want int) {
	t.Helper()
	got := w.walk(from, src, to.addr)
	wantEnd := to.owner
	if want == 0 {
		wantEnd = ""
	}
	if got.err != nil || got.end != wantEnd || want > 0 && got.hops != want {
		t.Fatalf("from %s (source %v) to %s of %s:%v: got %+v, want the end %q after %d links", from, src,
			to.addr, to.owner, to.ports, got, wantEnd, want)
	}
}

// checkEqualCost requires every switch to use exactly the ports that start a shortest path. A node
// must use the NICs that do, for sockets that are not bound.
func checkEqualCost(t testing.TB, p *Plan, w *walker, g graph, to destination, distance map[string]int) {
	t.Helper()
	for name, d := range w.devices {
		if name == to.owner || d.local[to.addr] {
			continue
		}
		own, reached := distance[name]
		var want []string
		for port, next := range g[name] {
			far, farReached := distance[next]
			nextForwards := p.Switch(next) != nil || next == to.owner
			if reached && farReached && nextForwards && far == own-1 &&
				(next != to.owner || to.ports == nil || slices.Contains(to.ports, peerPort(d, port))) {
				want = append(want, port)
			}
		}
		var got []string
		for _, hop := range d.lookup(netip.Addr{}, to.addr) {
			got = append(got, hop.Dev)
		}
		slices.Sort(got)
		slices.Sort(want)
		if d.isNode && !reached {
			continue // its default route ends at a switch that refuses
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s to %s of %s:%v: next hops %v, want %v", name, to.addr, to.owner, to.ports, got, want)
		}
	}
}

// peerPort returns the port at the other end of a device's port.
func peerPort(d *device, port string) string {
	i := slices.IndexFunc(d.ifaces, func(i Interface) bool { return i.Name == port })
	_, peer, _ := strings.Cut(d.ifaces[i].Peer, ":")
	return peer
}
