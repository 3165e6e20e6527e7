package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"railbed/plan/spec"
)

// Node returns the node with a name, or nil.
func (p *Plan) Node(name string) *Node {
	for i := range p.Nodes {
		if p.Nodes[i].Name == name {
			return &p.Nodes[i]
		}
	}
	return nil
}

// Switch returns the switch with a name, or nil.
func (p *Plan) Switch(name string) *Switch {
	for i := range p.Switches {
		if p.Switches[i].Name == name {
			return &p.Switches[i]
		}
	}
	return nil
}

// Link returns the link with a name, or nil.
func (p *Plan) Link(name string) *Link {
	for i := range p.Links {
		if p.Links[i].Name == name {
			return &p.Links[i]
		}
	}
	return nil
}

// NodeOrNIC returns the node with a name, or the NIC that a name such as h1:eth0 has. For the name of a node
// nic is nil. The error says which names there are.
func (p *Plan) NodeOrNIC(name string) (node *Node, nic *Interface, err error) {
	of, port, ofNIC := strings.Cut(name, ":")
	node = p.Node(of)
	if node == nil {
		return nil, nil, fmt.Errorf("no node is named %q; %s", of,
			suggest(of, names(p.Nodes, Node.named), "want a node such as "+p.anyNode()))
	}
	if !ofNIC {
		return node, nil, nil
	}
	for i := range node.NICs {
		if node.NICs[i].Name == port {
			return node, &node.NICs[i], nil
		}
	}
	return nil, nil, fmt.Errorf("node %s has no NIC %q; its NICs are %s", of, port,
		few(names(node.NICs, func(i Interface) string { return i.Name })))
}

// AddrOf returns the address of a node or a NIC, named as in NodeOrNIC. The address of a node is the
// address that its name has in the hosts file.
func (p *Plan) AddrOf(name string, v6 bool) (netip.Addr, error) {
	node, nic, err := p.NodeOrNIC(name)
	if err != nil {
		return netip.Addr{}, err
	}
	if nic != nil {
		for _, a := range nic.Addrs {
			if a.Addr().Is6() == v6 {
				return a.Addr(), nil
			}
		}
	}
	for _, h := range p.Hosts {
		if nic == nil && h.Name == node.Name && h.Addr.Is6() == v6 {
			return h.Addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no address of the chosen IP version", name)
}

// The names of a link's directions.
const (
	AToB = "a-to-b"
	BToA = "b-to-a"
)

// LinkPlace is a link, or one of its directions.
type LinkPlace struct {
	*Link
	// Direction is AToB, BToA, or empty for both.
	Direction string
}

// Where returns the place in the words of files: "leaf1--spine2 a-to-b".
func (l LinkPlace) Where() string { return strings.TrimSpace(l.Name + " " + l.Direction) }

// LinksAt returns the links at a place: a link's name or a glob over the names of links, optionally followed
// by " a-to-b" or " b-to-a". The name may have the two ends in either order, and a-to-b leads from the end
// that it has first: "spine2--leaf1 a-to-b" is "leaf1--spine2 b-to-a". The error says which name is near.
func (p *Plan) LinksAt(where string) (places []LinkPlace, err error) {
	name, direction, _ := strings.Cut(where, " ")
	other, known := map[string]string{"": "", AToB: BToA, BToA: AToB}[direction]
	if !known {
		return nil, fmt.Errorf("direction %q: want a-to-b or b-to-a", direction)
	}
	a, b, isLink := strings.Cut(name, "--")
	reversed := b + "--" + a
	for i := range p.Links {
		switch l := &p.Links[i]; {
		case spec.Match(name, l.Name):
			places = append(places, LinkPlace{l, direction})
		case isLink && spec.Match(reversed, l.Name):
			places = append(places, LinkPlace{l, other})
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("no link is named %q; %s", name, p.wantLink(name))
	}
	return places, nil
}

// wantLink says which links there are in place of a link that does not exist.
func (p *Plan) wantLink(name string) string {
	var all []string
	for _, end := range strings.Split(name, "--") {
		var own []string
		for _, l := range p.Links {
			all = append(all, l.Name)
			if l.A.Node == end || l.B.Node == end {
				own = append(own, l.Name)
			}
		}
		if len(own) > 0 {
			return fmt.Sprintf("the links of %s are %s", end, few(own))
		}
	}
	return wantName(name, "link", all)
}

// Sends returns the direction of the link in which a node's NIC sends, or nil.
func (p *Plan) Sends(node, nic string) *Direction {
	for i := range p.Links {
		switch l, end := &p.Links[i], (End{Node: node, Port: nic}); end {
		case l.A:
			return &l.AToB
		case l.B:
			return &l.BToA
		}
	}
	return nil
}

// RanksOf returns the ranks with the given numbers, renumbered from 0 in this order, or all ranks if there
// are no numbers. The compiler has checked the numbers of files.
func (p *Plan) RanksOf(numbers []int) []Rank {
	if len(numbers) == 0 {
		return p.Ranks
	}
	ranks := make([]Rank, len(numbers))
	for i, number := range numbers {
		ranks[i] = p.Ranks[number]
		ranks[i].Rank = i
	}
	return ranks
}

// Soft reports whether the switches are soft. A plan has switches of one kind only.
func (p *Plan) Soft() bool { return len(p.Switches) > 0 && p.Switches[0].Kind == spec.Soft }

// PortNames returns the switch's ports as NODE:PORT.
func (s *Switch) PortNames() (names []string) {
	for _, port := range s.Ports {
		names = append(names, End{s.Name, port.Name}.Name())
	}
	return names
}

// Name returns the port as NODE:PORT.
func (e End) Name() string { return e.Node + ":" + e.Port }

// Bridged reports whether the switch forwards by hardware address and its nodes share a subnet.
func (s *Switch) Bridged() bool {
	return s.Kind == spec.Bridge || s.Kind == spec.Soft && s.Forwarding == spec.L2
}

// anyNode returns the name of a node, as an example in texts.
func (p *Plan) anyNode() string {
	if len(p.Nodes) == 0 {
		return "h0, of a fabric with hosts"
	}
	return p.Nodes[0].Name
}
