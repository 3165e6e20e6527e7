package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
)

// text is a path in words.
func text(path []plan.End) string {
	words := make([]string, len(path))
	for i, end := range path {
		words[i] = end.Node + ":" + end.Port
	}
	return strings.Join(words, " ")
}

// texts are paths in words, in an order of their own.
func texts(paths [][]plan.End) (words []string) {
	for _, path := range paths {
		words = append(words, text(path))
	}
	slices.Sort(words)
	return words
}

// TestPathsFollowTheRoutes compares the paths of flows from each NIC to each address of a node with those
// of the plan's routes.
func TestPathsFollowTheRoutes(t *testing.T) {
	for name, p := range shapes(t) {
		if name == "fat-tree 6" { // takes 3 s, and shows what fat-tree 4 does
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, p, spec.Flow)
			w := &walk{fabric: f}
			paths, err := NewPaths(p)
			if err != nil {
				t.Fatal(err)
			}
			var follow func(at plan.End, dst netip.Addr, path []plan.End) [][]plan.End
			follow = func(at plan.End, dst netip.Addr, path []plan.End) (all [][]plan.End) {
				path = append(slices.Clone(path), at)
				next := f.far[at].Node
				if p.Switch(next) == nil {
					return [][]plan.End{path}
				}
				for _, port := range w.planned(next, dst) {
					all = append(all, follow(plan.End{Node: next, Port: port}, dst, path)...)
				}
				return all
			}
			several := false
			for i := range p.Nodes {
				n := &p.Nodes[i]
				for _, nic := range n.NICs {
					for dst, owner := range f.owner {
						if p.Node(owner) == nil || owner == n.Name {
							continue
						}
						src := nic.Addrs[0].Addr()
						if dst.Is6() {
							src = nic.Addrs[1].Addr()
						}
						want := follow(plan.End{Node: n.Name, Port: nic.Name}, dst, nil)
						got, err := paths.Of(n.Name, Flow{Src: src, Dst: dst}, 1000)
						if len(want) > 0 && err != nil || !slices.Equal(texts(got), texts(want)) {
							t.Fatalf("from %v to %v of %s: %v, %v, want %v", src, dst, owner, texts(got), err,
								texts(want))
						}
						several = several || len(want) > 1
					}
				}
			}
			if !several && (name == "leaf-spine" || name == "torus") {
				t.Error("no flow has several paths")
			}
		})
	}
}

// TestPathsOfKnownPorts sends packets with many ports through switches that hash, and compares the ports
// that send them with the path that is known before.
func TestPathsOfKnownPorts(t *testing.T) {
	p := plantest.Compile(t, "name: t\nfabric: {topology: fat-tree, params: {k: 4}, switch: {kind: soft}}\n")
	f := newFabric(t, p, spec.Flow)
	paths, err := NewPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	from, to := p.Node("h0"), p.Node("h15")
	src, dst := from.NICs[0].Addrs[0].Addr(), to.NICs[0].Addrs[0].Addr()
	all, err := paths.Of("h0", Flow{Src: src, Dst: dst}, 4)
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %v, want 4 paths", texts(all), err)
	}
	if _, err := paths.Of("h0", Flow{Src: src, Dst: dst}, 3); err == nil {
		t.Error("4 paths are within a limit of 3")
	}
	taken := map[string]bool{}
	for port := range uint16(60) {
		d, at := f.from(from, 0, datagram{src: src, dst: dst, srcPort: 20000 + port, dstPort: 17000})
		one := d.packet(f.pool)
		sent := []plan.End{{Node: "h0", Port: "eth0"}}
		for p.Switch(at.Node) != nil {
			decision := f.tables[at.Node].Decide(0, one, f.port(at))
			if decision.Action != Send {
				t.Fatalf("%v: %+v", at, decision)
			}
			sent = append(sent, plan.End{Node: at.Node, Port: p.Switch(at.Node).Ports[decision.Port].Name})
			at = f.far[sent[len(sent)-1]]
		}
		f.pool.Put(one)
		got, err := paths.Of("h0", Flow{Src: src, Dst: dst, Protocol: wire.ProtocolUDP, SrcPort: 20000 + port,
			DstPort: 17000}, 1)
		if err != nil || len(got) != 1 || text(got[0]) != text(sent) {
			t.Fatalf("port %d: %v, %v, want %s", port, texts(got), err, text(sent))
		}
		taken[text(sent)] = true
	}
	if len(taken) != 4 {
		t.Errorf("60 flows take %d of 4 paths", len(taken))
	}
}

// TestPathsWithoutAChoice: bridges have one path, sprayed flows all, and a sender that is not bound may use
// each of its NICs.
func TestPathsWithoutAChoice(t *testing.T) {
	for _, c := range []struct {
		name, fabric string
		bound        bool
		want         []string
	}{
		{"bridges", "{topology: explicit, hosts: [a, b], connect: [a -- s, s -- t, b -- t], " +
			"switches: {s: {}, t: {}}, switch: {kind: soft, forwarding: l2}}", false,
			[]string{"a:eth0 s:p1 t:p1"}},
		{"spray", "{topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 1}, switch: " +
			"{kind: soft, load-balance: spray}}", true,
			[]string{"h0:eth0 leaf1:p1 spine1:p1 leaf2:p0", "h0:eth0 leaf1:p2 spine2:p1 leaf2:p0"}},
		{"two NICs", "{topology: explicit, hosts: [a, b], connect: [a -- s, a -- t, b -- s, b -- t], " +
			"switches: {s: {}, t: {}}, switch: {kind: soft}}", false, []string{"a:eth0 s:p1", "a:eth1 t:p1"}},
	} {
		p := plantest.Compile(t, fmt.Sprintf("name: t\nfabric: %s\n", c.fabric))
		paths, err := NewPaths(p)
		if err != nil {
			t.Fatal(err)
		}
		var flow Flow
		for _, h := range p.Hosts {
			if h.Name == p.Nodes[1].Name && h.Addr.Is4() {
				flow.Dst = h.Addr
			}
		}
		if c.bound {
			flow = Flow{p.Nodes[0].NICs[0].Addrs[0].Addr(), flow.Dst, wire.ProtocolUDP, 1, 2}
		}
		if got, err := paths.Of(p.Nodes[0].Name, flow, 10); err != nil || !slices.Equal(texts(got), c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, texts(got), err, c.want)
		}
	}
}

// TestPathsThatEndElsewhere are flows without a path to another node.
func TestPathsThatEndElsewhere(t *testing.T) {
	p := plantest.Compile(t, "name: t\nfabric: {topology: rail-optimized, params: {servers: 2, rails: 2}, "+
		"switch: {kind: soft}}\n")
	paths, err := NewPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	own, other := p.Nodes[0].NICs, p.Nodes[1].NICs
	for _, c := range []struct {
		node     string
		src, dst netip.Addr
		want     string
	}{
		{"h9", own[0].Addrs[0].Addr(), other[0].Addrs[0].Addr(), "no node is named h9"},
		{p.Nodes[0].Name, own[0].Addrs[0].Addr(), own[1].Addrs[0].Addr(),
			"is an address of " + p.Nodes[0].Name},
		{p.Nodes[0].Name, own[0].Addrs[0].Addr(), other[1].Addrs[0].Addr(), "no path leads from"},
		{p.Nodes[0].Name, own[0].Addrs[0].Addr(), p.Switches[0].Loopbacks[0].Addr(), "no path leads from"},
	} {
		got, err := paths.Of(c.node, Flow{Src: c.src, Dst: c.dst}, 10)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %s to %v: %v, %v, want %q", c.node, c.dst, texts(got), err, c.want)
		}
	}
}
