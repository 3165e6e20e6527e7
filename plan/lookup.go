package plan

import "railbed/plan/spec"

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
