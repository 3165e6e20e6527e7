package evidence

import (
	"net/netip"

	"railbed/plan"
)

// Owner is the owner of an address: a node, and the NIC unless the address belongs to the node as a
// whole.
type Owner struct{ Node, NIC string }

// OwnersOf returns the owner of each address of a plan's nodes.
func OwnersOf(p *plan.Plan) map[netip.Addr]Owner {
	found := map[netip.Addr]Owner{}
	if p == nil {
		return found
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, prefix := range n.Loopbacks {
			found[prefix.Addr()] = Owner{Node: n.Name}
		}
		for _, nic := range n.NICs {
			for _, prefix := range nic.Addrs {
				found[prefix.Addr()] = Owner{n.Name, nic.Name}
			}
		}
	}
	return found
}
