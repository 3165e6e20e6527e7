package topology

import (
	"fmt"
	"slices"
)

// builder builds a graph. Switches and hosts are identified by their index.
type builder struct {
	graph *Graph
}

func newBuilder() *builder { return &builder{graph: &Graph{}} }

func (b *builder) addHost() int {
	id := len(b.graph.Hosts)
	b.graph.Hosts = append(b.graph.Hosts, Host{Name: fmt.Sprintf("h%d", id)})
	return id
}

func (b *builder) addSwitch(s Switch) int {
	b.graph.Switches = append(b.graph.Switches, s)
	return len(b.graph.Switches) - 1
}

// addSwitches adds count switches like s, named s.Name with 1, 2, ... appended.
func (b *builder) addSwitches(count int, s Switch) []int {
	ids := make([]int, count)
	for i := range ids {
		numbered := s
		numbered.Name = fmt.Sprintf("%s%d", s.Name, i+1)
		ids[i] = b.addSwitch(numbered)
	}
	return ids
}

// wireHost adds a NIC to the host and wires it to the switch.
func (b *builder) wireHost(host, sw int) {
	h := &b.graph.Hosts[host]
	port := fmt.Sprintf("eth%d", len(h.Ports))
	h.Ports = append(h.Ports, port)
	b.graph.Links = append(b.graph.Links, Link{A: End{h.Name, port}, B: b.newPort(sw)})
}

// wire links two switches.
func (b *builder) wire(lower, upper int) {
	b.graph.Links = append(b.graph.Links, Link{A: b.newPort(lower), B: b.newPort(upper)})
}

// wireAll links every lower switch to every upper switch.
func (b *builder) wireAll(lower, upper []int) {
	b.graph.Links = slices.Grow(b.graph.Links, len(lower)*len(upper))
	for _, l := range lower {
		for _, u := range upper {
			b.wire(l, u)
		}
	}
}

func (b *builder) newPort(sw int) End {
	s := &b.graph.Switches[sw]
	port := fmt.Sprintf("p%d", len(s.Ports))
	s.Ports = append(s.Ports, port)
	return End{s.Name, port}
}
