package fabric

import (
	"net/netip"

	"railbed/testbed/plan"
)

// Attachment is a NIC's place in a testbed, and its node's, as whoever owns another
// namespace needs it to be the node there. It travels as JSON.
type Attachment struct {
	Node     plan.Node `json:"node"`
	NIC      int       `json:"nic"` // of the node's
	Link     plan.Link `json:"link"`
	Dilation uint64    `json:"dilation"`
	// Beside are the node's other NICs that are in the namespace by now, by the names of
	// their interfaces there.
	Beside map[string]string `json:"beside,omitempty"`
	// Reach are the prefixes that stand in the main table instead of a default route,
	// which is the other network's; nil keeps the default route.
	Reach []netip.Prefix `json:"reach,omitempty"`
	// Down says that the link is: the NIC then has no carrier, but while Attach makes it.
	Down bool `json:"down,omitempty"`
	// Many says that the testbed has more NICs than have ports of their own with the fastest
	// driver, which takes the kernel twice as long to close.
	Many bool `json:"many,omitempty"`
}

// NewAttachment is that of a node's NIC. DefaultRoute keeps the plan's default route.
func NewAttachment(p *plan.Plan, n *plan.Node, nic int, defaultRoute bool) *Attachment {
	a := &Attachment{Node: *n, NIC: nic, Link: *p.Link(n.NICs[nic].Link), Dilation: p.Dilation}
	if !defaultRoute {
		a.Reach = p.Cover()
	}
	nics := 0
	for i := range p.Nodes {
		nics += len(p.Nodes[i].NICs)
	}
	a.Many = nics > mostOwnPorts
	return a
}

// Interface is the NIC as the plan has it.
func (a *Attachment) Interface() *plan.Interface { return &a.Node.NICs[a.NIC] }

// End is the NIC.
func (a *Attachment) End() plan.End { return plan.End{Node: a.Node.Name, Port: a.Interface().Name} }

// Addresses are the NIC's.
func (a *Attachment) Addresses() (all []netip.Addr) {
	for _, prefix := range a.Interface().Addrs {
		all = append(all, prefix.Addr())
	}
	return all
}

// Main are the routes of the main table that go by the NIC, whatever the names of
// interfaces are.
func (a *Attachment) Main() []plan.Route {
	return a.main(map[string]string{a.Interface().Name: a.Interface().Name})
}

// main are the routes of the main table that the NIC has a part in, by those NICs of the
// node that have an interface, which they then go by.
func (a *Attachment) main(interfaces map[string]string) (all []plan.Route) {
	add := func(r plan.Route) {
		part, hops := false, r.NextHops
		r.NextHops = nil
		for _, hop := range hops {
			part = part || hop.Dev == a.Interface().Name
			if dev, there := interfaces[hop.Dev]; there {
				hop.Dev = dev
				r.NextHops = append(r.NextHops, hop)
			}
		}
		if part && len(r.NextHops) > 0 {
			all = append(all, r)
		}
	}
	for _, r := range a.Node.Routes {
		switch {
		case r.Table != 0:
		case r.Dst.Bits() != 0 || a.Reach == nil:
			add(r)
		default: // a default route, which is the other network's
			for _, reach := range a.Reach {
				if reach.Addr().Is4() == r.Dst.Addr().Is4() {
					r.Dst = reach
					add(r)
				}
			}
		}
	}
	return all
}
