package verify

import (
	"net/netip"

	"railbed/plan"
)

// owner is the owner of an address: a node, and the NIC unless the address belongs to the node as a
// whole.
type owner struct{ node, nic string }

// ownersOf returns the owner of each address of a plan's nodes.
func ownersOf(p *plan.Plan) map[netip.Addr]owner {
	found := map[netip.Addr]owner{}
	if p == nil {
		return found
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, prefix := range n.Loopbacks {
			found[prefix.Addr()] = owner{node: n.Name}
		}
		for _, nic := range n.NICs {
			for _, prefix := range nic.Addrs {
				found[prefix.Addr()] = owner{n.Name, nic.Name}
			}
		}
	}
	return found
}
