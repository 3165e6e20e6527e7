package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"railbed/testbed/spec"
)

// Hash identifies what the plan decides: it is the SHA-256 of the plan's JSON
// in hex. The JSON is canonical, because the plan has no maps but those of
// strings, which encoding/json sorts.
func (p *Plan) Hash() string {
	text, err := json.Marshal(p.withoutPlaces())
	if err != nil {
		// No field of a plan can fail to encode: its only custom encoders are
		// those of units and netip, which return no errors.
		panic("hash plan: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// withoutPlaces is the plan wherever in its file things are said.
func (p *Plan) withoutPlaces() *Plan {
	q := *p
	q.Containers, q.Sysctls, q.Requires = nil, nil, slices.Clone(p.Requires)
	for i := range q.Requires {
		q.Requires[i].Where = ""
	}
	if p.Management != nil {
		m := *p.Management
		m.Where = nil
		q.Management = &m
	}
	return &q
}

// Node returns the node of a name, or nil.
func (p *Plan) Node(name string) *Node {
	for i := range p.Nodes {
		if p.Nodes[i].Name == name {
			return &p.Nodes[i]
		}
	}
	return nil
}

// Switch returns the switch of a name, or nil.
func (p *Plan) Switch(name string) *Switch {
	for i := range p.Switches {
		if p.Switches[i].Name == name {
			return &p.Switches[i]
		}
	}
	return nil
}

// Link returns the link of a name, or nil.
func (p *Plan) Link(name string) *Link {
	for i := range p.Links {
		if p.Links[i].Name == name {
			return &p.Links[i]
		}
	}
	return nil
}

// Sends is the direction of the link into which a node's NIC sends, or nil.
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

// Soft reports whether the switches are soft ones. A plan has switches of one
// kind only.
func (p *Plan) Soft() bool { return len(p.Switches) > 0 && p.Switches[0].Kind == spec.Soft }

// Bridged reports whether the switch forwards by hardware address and its nodes
// share a subnet.
func (s *Switch) Bridged() bool {
	return s.Kind == spec.Bridge || s.Kind == spec.Soft && s.Forwarding == spec.L2
}
