package fabric

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/plan"
)

// Attachment describes a NIC of a testbed and its node, for a process that makes another namespace
// that node. It travels as JSON.
type Attachment struct {
	Node     plan.Node `json:"node"`
	NIC      int       `json:"nic"` // index among the node's NICs
	Link     plan.Link `json:"link"`
	Dilation uint64    `json:"dilation"`
	// Beside maps the node's other NICs that are already in the namespace to the names of their
	// interfaces there.
	Beside map[string]string `json:"beside,omitempty"`
	// Reach lists the prefixes that replace the default route in the main table, because the
	// namespace's default route leads to another network. Nil keeps the plan's default route.
	Reach []netip.Prefix `json:"reach,omitempty"`
	// Down is set if the link is down. The NIC then has no carrier, except while Attach creates it.
	Down bool `json:"down,omitempty"`
	// Many is set if the testbed has too many NICs for ports of the fastest driver, which the
	// kernel takes twice as long to close.
	Many bool `json:"many,omitempty"`
}

// NewAttachment returns the attachment of a node's NIC. DefaultRoute keeps the plan's default
// route.
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

// Bounds that Check enforces.
const (
	mostAttachedNICs   = 64
	mostAttachedRoutes = 1 << 14
	// shortestAttached is the shortest prefix, in bits, of an address or of a route other than a
	// default route. A few shorter prefixes together are a default route. The kernel adds a route
	// for an address's prefix.
	shortestAttached = 8
)

// Check refuses an attachment that requests more than a testbed needs in a container's namespace.
// The testbed may belong to another user than the user whose rights create the NIC. So an
// attachment may only result in the NIC, its own addresses and routes through it. DefaultRoute is
// true if the container's default route is to use the NIC.
func (a *Attachment) Check(defaultRoute bool) error {
	if a == nil {
		return errors.New("no attachment; want the attachment of a NIC")
	}
	if a.NIC < 0 || a.NIC >= len(a.Node.NICs) || len(a.Node.NICs) > mostAttachedNICs {
		return fmt.Errorf("attachment of %q: NIC %d of %d; want an index from 0, and at most %d NICs",
			a.Node.Name, a.NIC, len(a.Node.NICs), mostAttachedNICs)
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("attachment of %s:%s: %s", a.End().Node, a.End().Port, fmt.Sprintf(format, args...))
	}
	if n := len(a.Node.Routes) + len(a.Reach) + len(a.Node.Rules) +
		len(a.Interface().Neighbors); n > mostAttachedRoutes {
		return wrong("%d routes, rules and neighbours; want at most %d", n, mostAttachedRoutes)
	}
	seen := map[netip.Addr]bool{}
	for _, prefix := range slices.Concat(a.Interface().Addrs, a.Node.Loopbacks) {
		if seen[prefix.Addr()] {
			return wrong("address %s twice; want each address once", prefix)
		}
		seen[prefix.Addr()] = true
		if !ordinary(prefix) {
			return wrong("address %s; want a unicast address, not loopback or link-local", prefix)
		}
		if prefix.Bits() < shortestAttached {
			return wrong("address %s; want a prefix of at least %d bits", prefix, shortestAttached)
		}
	}
	for _, rule := range a.Node.Rules {
		if !rule.From.IsSingleIP() {
			return wrong("rule from %s; want a single address", rule.From)
		}
	}
	for _, route := range a.Node.Routes {
		if len(route.NextHops) == 0 || !route.Dst.IsValid() {
			return wrong("route to %s with %d next hops; want a destination and a next hop", route.Dst,
				len(route.NextHops))
		}
	}
	for _, route := range a.Main() {
		switch {
		case route.Dst.Bits() == 0 && defaultRoute:
		case route.Dst.Bits() < shortestAttached:
			return wrong("route to %s; want a prefix of at least %d bits, or, for a default route, "+
				"isDefaultGateway in the network configuration", route.Dst, shortestAttached)
		case !ordinary(route.Dst):
			return wrong("route to %s; want a unicast destination, not loopback or link-local", route.Dst)
		}
	}
	return nil
}

// ordinary reports whether a prefix contains no loopback, link-local or multicast addresses, which
// have the same meaning in every namespace.
func ordinary(prefix netip.Prefix) bool {
	for _, special := range []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10", "224.0.0.0/4",
		"ff00::/8"} {
		if prefix.IsValid() && prefix.Overlaps(netip.MustParsePrefix(special)) {
			return false
		}
	}
	return prefix.IsValid() && !prefix.Addr().IsUnspecified()
}

// Interface returns the NIC's interface in the plan.
func (a *Attachment) Interface() *plan.Interface { return &a.Node.NICs[a.NIC] }

// End names the NIC.
func (a *Attachment) End() plan.End { return plan.End{Node: a.Node.Name, Port: a.Interface().Name} }

// Addresses returns the NIC's addresses.
func (a *Attachment) Addresses() (all []netip.Addr) {
	for _, prefix := range a.Interface().Addrs {
		all = append(all, prefix.Addr())
	}
	return all
}

// Main returns the routes of the main table that use the NIC, whatever the names of interfaces are.
func (a *Attachment) Main() []plan.Route {
	return a.main(map[string]string{a.Interface().Name: a.Interface().Name})
}

// main returns the routes of the main table that use the NIC. Their next hops are limited to the
// node's NICs with an interface.
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
		default: // a default route: the namespace has another network's
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
