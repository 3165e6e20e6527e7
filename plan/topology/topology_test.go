package topology

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func mustGenerate(t *testing.T, name string, params map[string]int) *Graph {
	t.Helper()
	g, err := Generate(name, params)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// checkGraph checks every graph for distinct names. Every port of every host and switch is in
// exactly one link, in the order of the ports.
func checkGraph(t *testing.T, g *Graph) {
	t.Helper()
	free := map[End]bool{}
	names := map[string]bool{}
	add := func(name string, ports []string) {
		if names[name] {
			t.Fatalf("two things are called %s", name)
		}
		names[name] = true
		for _, port := range ports {
			if free[End{name, port}] {
				t.Fatalf("%s has two ports %s", name, port)
			}
			free[End{name, port}] = true
		}
	}
	for _, h := range g.Hosts {
		add(h.Name, h.Ports)
	}
	for _, s := range g.Switches {
		add(s.Name, s.Ports)
	}
	for _, l := range g.Links {
		for _, e := range []End{l.A, l.B} {
			if !free[e] {
				t.Fatalf("link %v: %v does not exist or is taken", l, e)
			}
			delete(free, e)
		}
	}
	if len(free) > 0 {
		t.Fatalf("ports without a link: %v", free)
	}
}

// peers returns the names at the other ends of a device's links, in their order.
func peers(g *Graph, name string) []string {
	var found []string
	for _, l := range g.Links {
		switch name {
		case l.A.Node:
			found = append(found, l.B.Node)
		case l.B.Node:
			found = append(found, l.A.Node)
		}
	}
	return found
}

func ports(g *Graph, name string) int { return len(peers(g, name)) }

// TestCounts compares with the closed formulas of each topology.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		topology               string
		params                 map[string]int
		hosts, switches, links int
	}{
		{SingleSwitch, map[string]int{"hosts": 5}, 5, 1, 5},
		{LeafSpine, map[string]int{"leaves": 3, "spines": 4, "hosts-per-leaf": 5}, 15, 7, 15 + 12},
		{LeafSpine, map[string]int{"leaves": 3, "spines": 4, "hosts-per-leaf": 5, "striped": 1}, 15, 7,
			15 + 12},
		// Al-Fares: k^3/4 hosts, 5k^2/4 switches, 3k^3/4 links.
		{FatTree, map[string]int{"k": 2}, 2, 5, 6},
		{FatTree, map[string]int{"k": 4}, 16, 20, 48},
		{FatTree, map[string]int{"k": 8}, 128, 80, 384},
		{RailOptimized, map[string]int{"servers": 6, "rails": 4}, 6, 4, 24},
		{RailOptimized, map[string]int{"servers": 6, "rails": 4, "spines": 3}, 6, 7, 24 + 12},
		{HPN, map[string]int{"segments": 2, "servers": 3, "rails": 4, "aggs": 5}, 6, 2*2*4 + 2*5, 6*8 + 16*5},
		{Torus, map[string]int{"x": 5}, 5, 5, 5 + 5},
		{Torus, map[string]int{"x": 4, "y": 4}, 16, 16, 16 + 32},
		{Torus, map[string]int{"x": 3, "y": 3, "z": 3, "hosts-per-switch": 2}, 54, 27, 54 + 81},
		// A dimension of size two has one link, not two. A dimension of size one has none.
		{Torus, map[string]int{"x": 2, "y": 2}, 4, 4, 4 + 4},
		{Torus, map[string]int{"x": 2, "y": 3, "z": 1}, 6, 6, 6 + 3 + 6},
		{Torus, map[string]int{"x": 1}, 1, 1, 1},
		{Dragonfly, map[string]int{"groups": 9, "switches": 4, "hosts-per-switch": 2, "global-links": 2}, 72,
			36, 72 + 54 + 36},
	} {
		t.Run(fmt.Sprint(c.topology, c.params), func(t *testing.T) {
			g := mustGenerate(t, c.topology, c.params)
			checkGraph(t, g)
			if len(g.Hosts) != c.hosts || len(g.Switches) != c.switches || len(g.Links) != c.links {
				t.Errorf("%d hosts, %d switches, %d links; want %d, %d, %d",
					len(g.Hosts), len(g.Switches), len(g.Links), c.hosts, c.switches, c.links)
			}
			if !reflect.DeepEqual(g, mustGenerate(t, c.topology, c.params)) {
				t.Error("a second graph differs")
			}
			generator, _ := Find(c.topology)
			values, err := generator.resolve(c.params)
			if err != nil {
				t.Fatal(err)
			}
			if n := generator.size(values); n.hosts != c.hosts || n.switches < c.switches ||
				n.links < c.links {
				t.Errorf("announced %+v", n)
			}
		})
	}
}

func TestLeafSpineWiring(t *testing.T) {
	g := mustGenerate(t, LeafSpine, map[string]int{"leaves": 2, "spines": 2, "hosts-per-leaf": 2})
	if got := fmt.Sprint(peers(g, "leaf2")); got != "[h2 h3 spine1 spine2]" {
		t.Errorf("leaf2 has %s", got)
	}
	want := Link{A: End{"leaf1", "p3"}, B: End{"spine2", "p0"}}
	if got := g.Links[5]; got != want {
		t.Errorf("link 5 is %v, want %v", got, want)
	}
	striped := mustGenerate(t, LeafSpine,
		map[string]int{"leaves": 2, "spines": 2, "hosts-per-leaf": 2, "striped": 1})
	if got := fmt.Sprint(peers(striped, "leaf2")); got != "[h1 h3 spine1 spine2]" {
		t.Errorf("striped: leaf2 has %s", got)
	}
}

// TestFatTreeWiring: every switch has k ports, and every core switch has one port to each pod.
func TestFatTreeWiring(t *testing.T) {
	const k = 6
	g := mustGenerate(t, FatTree, map[string]int{"k": k})
	group := map[string]string{}
	for _, s := range g.Switches {
		group[s.Name] = s.Group
		if n := ports(g, s.Name); n != k {
			t.Errorf("%s has %d ports", s.Name, n)
		}
	}
	for _, s := range g.Switches {
		pods := map[string]int{}
		for _, peer := range peers(g, s.Name) {
			pods[group[peer]]++
		}
		switch {
		case s.Role == roleCore && len(pods) != k:
			t.Errorf("%s reaches the pods %v", s.Name, pods)
		case s.Role == roleAgg && pods[s.Group] != k/2:
			t.Errorf("%s has %v", s.Name, pods)
		}
	}
}

// TestRails: NIC i of every server is on rail switch i+1.
func TestRails(t *testing.T) {
	g := mustGenerate(t, RailOptimized, map[string]int{"servers": 3, "rails": 4, "spines": 1})
	for _, h := range g.Hosts {
		if got := fmt.Sprint(peers(g, h.Name)); got != "[leaf1 leaf2 leaf3 leaf4]" {
			t.Errorf("%s is on %s", h.Name, got)
		}
	}
	if got := fmt.Sprint(peers(g, "spine1")); got != "[leaf1 leaf2 leaf3 leaf4]" {
		t.Errorf("spine1 has %s", got)
	}
}

// TestHPN: ports 2r and 2r+1 of a server lead to the two planes' ToRs of rail r of its segment, and
// no link joins the planes.
func TestHPN(t *testing.T) {
	g := mustGenerate(t, HPN, map[string]int{"segments": 2, "servers": 2, "rails": 2, "aggs": 3})
	if got := fmt.Sprint(peers(g, "h2")); got != "[tor-s2r1a tor-s2r1b tor-s2r2a tor-s2r2b]" {
		t.Errorf("h2 is on %s", got)
	}
	plane := map[string]string{}
	for _, s := range g.Switches {
		plane[s.Name] = s.Group
	}
	for _, l := range g.Links {
		if plane[l.A.Node] != "" && plane[l.A.Node] != plane[l.B.Node] {
			t.Errorf("%v joins the planes", l)
		}
	}
	if got := fmt.Sprint(peers(g, "agg-b3")); got != "[tor-s1r1b tor-s1r2b tor-s2r1b tor-s2r2b]" {
		t.Errorf("agg-b3 has %s", got)
	}
}

// TestTorusNeighbours: one step in each direction of each dimension.
func TestTorusNeighbours(t *testing.T) {
	g := mustGenerate(t, Torus, map[string]int{"x": 3, "y": 4})
	got := map[string]bool{}
	for _, p := range peers(g, "sw0-3") {
		got[p] = true
	}
	want := map[string]bool{"h3": true, "sw1-3": true, "sw2-3": true, "sw0-0": true, "sw0-2": true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sw0-3 has %v, want %v", got, want)
	}
}

// TestDragonfly checks the definition of the paper. All switches of a group are linked, and each
// two groups have as many links as others. No switch has more global links than it may. Three links
// lead from each switch to each other switch.
func TestDragonfly(t *testing.T) {
	for _, c := range []struct{ groups, switches, hosts, global, between int }{
		{2, 1, 1, 1, 1}, {9, 4, 2, 2, 1}, {5, 4, 1, 1, 1}, {3, 4, 1, 2, 4}, {4, 4, 3, 1, 1}, {33, 8, 4, 4, 1},
	} {
		g, err := Generate(Dragonfly, map[string]int{"groups": c.groups, "switches": c.switches,
			"hosts-per-switch": c.hosts, "global-links": c.global})
		if err != nil {
			t.Fatal(err)
		}
		group, next, global, between := map[string]string{}, map[string][]string{}, map[string]int{},
			map[[2]string]int{}
		for _, s := range g.Switches {
			group[s.Name] = s.Group
		}
		for _, l := range g.Links {
			a, b := l.A.Node, l.B.Node
			if group[a] == "" { // a host's
				continue
			}
			next[a], next[b] = append(next[a], b), append(next[b], a)
			if group[a] != group[b] {
				global[a]++
				global[b]++
				between[[2]string{group[a], group[b]}]++
			}
		}
		if len(g.Hosts) != c.groups*c.switches*c.hosts || len(between) != c.groups*(c.groups-1)/2 {
			t.Errorf("%+v: %d hosts, and %d pairs of groups are joined", c, len(g.Hosts), len(between))
		}
		for pair, count := range between {
			if count != c.between {
				t.Errorf("%+v: %d links between %v", c, count, pair)
			}
		}
		for _, s := range g.Switches {
			if global[s.Name] > c.global || len(next[s.Name])-global[s.Name] != c.switches-1 {
				t.Errorf("%+v: %s has %d global links of %d", c, s.Name, global[s.Name], len(next[s.Name]))
			}
			reached := map[string]bool{s.Name: true}
			for range 3 {
				for from := range maps.Clone(reached) {
					for _, to := range next[from] {
						reached[to] = true
					}
				}
			}
			if len(reached) != len(g.Switches) {
				t.Errorf("%+v: three links lead from %s to %d switches", c, s.Name, len(reached))
			}
		}
	}
	_, err := Generate(Dragonfly, map[string]int{"groups": 6, "switches": 2, "global-links": 2})
	var wrong *ParamError
	if !errors.As(err, &wrong) || wrong.Param != "groups" ||
		wrong.Want != "want at most 5 groups, or more switches or global-links" {
		t.Errorf("six groups: %v", err)
	}
}

func TestParamErrors(t *testing.T) {
	_, err := Generate(HPN, map[string]int{"segments": 0, "servers": 1, "rails": 17, "planes": 2})
	want := []string{
		"hpn: segments is 0; want a whole number from 1 to 64",
		"hpn: rails is 17; want a whole number from 1 to 16",
		`hpn needs the parameter "aggs", aggregation switches of each plane; want a whole number from 1 to 256`,
		`hpn has no parameter "planes"; want segments, servers, rails, aggs`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
	var p *ParamError
	if _, err := Generate("clos", nil); !errors.As(err, &p) || p.Param != "" ||
		!strings.Contains(p.Want, "leaf-spine") {
		t.Errorf("got %v", err)
	}
	if _, err := Generate(SingleSwitch, map[string]int{"hosts": 4097}); err == nil {
		t.Error("4097 hosts are accepted")
	}
}

func TestExplicit(t *testing.T) {
	g, err := Explicit(Wiring{
		Hosts:    []string{"b", "a"},
		Switches: []string{"s", "t", "lonely"},
		Connect:  []string{"s -- a:eth10", "a -- s", "a:eth2 -- s:p1", "b -- t", "t -- s", "lonely -- t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkGraph(t, g)
	want := []Link{
		// A host's end comes first, whatever the file's order.
		{End{"a", "eth10"}, End{"s", "p0"}},
		{End{"a", "eth0"}, End{"s", "p2"}}, // p1 is named below
		{End{"a", "eth2"}, End{"s", "p1"}},
		{End{"b", "eth0"}, End{"t", "p0"}},
		{End{"t", "p1"}, End{"s", "p3"}},
		{End{"lonely", "p0"}, End{"t", "p2"}},
	}
	if !reflect.DeepEqual(g.Links, want) {
		t.Errorf("links %v", g.Links)
	}
	if got := fmt.Sprint(g.Hosts[1].Ports); got != "[eth0 eth2 eth10]" {
		t.Errorf("NICs of a are %s", got)
	}
	for i, tier := range []int{0, 0, 1} {
		if g.Switches[i].Tier != tier {
			t.Errorf("%s is in tier %d", g.Switches[i].Name, g.Switches[i].Tier)
		}
	}
}

func TestExplicitErrors(t *testing.T) {
	many := make([]string, maxSwitches+1)
	for _, c := range []struct {
		wiring Wiring
		want   string
	}{
		{Wiring{Hosts: []string{"a", "a"}}, `hosts[1] duplicate node "a"; want every name once`},
		{Wiring{Hosts: []string{"a"}, Switches: []string{"a"}},
			`switches[0] switch "a" has the name of a node; want every name once`},
		{Wiring{Hosts: []string{"a/b"}},
			`hosts[0] name "a/b" cannot be a host name; want at most 24 characters of a-z, 0-9 and single "-", the first a letter and the last not "-"`},
		{Wiring{Hosts: []string{"all"}},
			`hosts[0] name "all" is reserved; want another name than all, default, fabric, host, localhost, nics, switches`},
		{Wiring{Switches: many}, `switches[1024] switches has 1025 entries; want at most 1024`},
		{Wiring{Hosts: []string{"a"}, Switches: []string{"s"}, Connect: []string{"a:x y -- s"}},
			`connect[0] link "a:x y -- s": "x y" cannot be an interface name; want letters and digits, and . _ - after the first character`},
	} {
		_, err := Explicit(c.wiring)
		var wrong *WiringError
		if !errors.As(err, &wrong) {
			t.Errorf("%v: got %v", c.wiring, err)
			continue
		}
		if got := fmt.Sprintf("%s[%d] %v", wrong.List, wrong.Index, wrong); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
