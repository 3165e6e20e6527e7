package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Hash identifies what the plan decides: it is the SHA-256 of the plan's JSON
// in hex. The JSON is canonical, because the plan has no maps but those of
// strings, which encoding/json sorts.
func (p *Plan) Hash() string {
	text, err := json.Marshal(p)
	if err != nil {
		// No field of a plan can fail to encode: its only custom encoders are
		// those of units and netip, which return no errors.
		panic("hash plan: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Node returns the node of a name, or nil.
func (p *Plan) Node(name string) *Node {
	if i := slices.IndexFunc(p.Nodes, func(n Node) bool { return n.Name == name }); i >= 0 {
		return &p.Nodes[i]
	}
	return nil
}

// Switch returns the switch of a name, or nil.
func (p *Plan) Switch(name string) *Switch {
	if i := slices.IndexFunc(p.Switches, func(s Switch) bool { return s.Name == name }); i >= 0 {
		return &p.Switches[i]
	}
	return nil
}

// Link returns the link of a name, or nil.
func (p *Plan) Link(name string) *Link {
	if i := slices.IndexFunc(p.Links, func(l Link) bool { return l.Name == name }); i >= 0 {
		return &p.Links[i]
	}
	return nil
}
