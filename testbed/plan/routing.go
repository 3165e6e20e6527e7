package plan

import (
	"net/netip"
	"slices"
	"time"

	"railbed/testbed/spec"
)

// Routing is the daemons of a router that find routes by themselves. What they must
// find is in the router's Routes, see Learned.
type Routing struct {
	Daemon string `json:"daemon"` // spec.FRR
	// MachineID is of the node that the daemons run in.
	MachineID string `json:"machine_id"`
	// ASN is the router's number in BGP, private and no other's (RFC 6996).
	ASN uint32 `json:"asn"`
	// Peers are the neighbours, one for each link. Both families' routes are told over
	// IPv4: FRRouting has no session over IPv6 without a link-local address, which the
	// plan's interfaces have not.
	Peers []RoutingPeer `json:"peers"`
	// Networks are what the router announces: its own addresses, and those of its
	// nodes.
	Networks []netip.Prefix `json:"networks"`
	// Keepalive, Hold and BFD are the file's; 0 is no BFD.
	Keepalive time.Duration `json:"keepalive"`
	Hold      time.Duration `json:"hold"`
	BFD       time.Duration `json:"bfd,omitempty"`
}

// RoutingPeer is a router at the other end of a link.
type RoutingPeer struct {
	Switch string     `json:"switch"`
	Dev    string     `json:"dev"`
	Addr   netip.Addr `json:"addr"`
	ASN    uint32     `json:"asn"`
}

// firstASN begins the private numbers of four bytes; there are 94,967,295.
const firstASN = 4200000000

func asnOf(sw int) uint32 { return firstASN + uint32(sw) }

// Learned reports whether a daemon finds the route, and not the plan sets it: those
// that lead to other routers.
func (s *Switch) Learned(r Route) bool {
	return s.Routing != nil && slices.ContainsFunc(r.NextHops, func(hop NextHop) bool {
		return slices.ContainsFunc(s.Routing.Peers, func(p RoutingPeer) bool { return p.Dev == hop.Dev })
	})
}

// checkRouting refuses daemons where there is no kernel's router for them.
func (c *compiler) checkRouting() {
	r := c.t.Fabric.Routing
	if r == nil {
		return
	}
	if len(c.plan.Switches) == 0 || c.plan.Switches[0].Kind != spec.Router {
		c.wrongKey("fabric.routing", "want switch: {kind: router}, whose routes are the kernel's, or remove routing", "daemons have no routes to set in this fabric: its switches are no routers")
		return
	}
	for _, l := range c.plan.Links {
		if l.Weight > 1 {
			c.wrong(c.linkWeight(l), "remove it: BGP's paths of equal length have equal weights", "link %s has weight %d, and %s finds the routes", l.Name, l.Weight, r.Daemon)
			return
		}
	}
}

// addRouting decides what the routers' daemons tell whom.
func (c *compiler) addRouting() {
	r := c.t.Fabric.Routing
	if r == nil {
		return
	}
	for i := range c.plan.Switches {
		sw := &c.plan.Switches[i]
		routing := &Routing{
			Daemon: r.Daemon, MachineID: c.machineID(sw.Name), ASN: asnOf(i), Networks: slices.Clone(sw.Loopbacks),
			Keepalive: time.Duration(r.Keepalive), Hold: time.Duration(r.Hold), BFD: time.Duration(r.BFD),
		}
		sw.Routing = routing
		for p, port := range c.ports[i] {
			own := sw.Ports[p]
			if port.peer.isSwitch {
				peer := c.plan.Switches[port.peer.index]
				routing.Peers = append(routing.Peers, RoutingPeer{Switch: peer.Name, Dev: own.Name, Addr: c.iface(port.peer).Addrs[0].Addr(), ASN: asnOf(port.peer.index)})
				continue
			}
			for _, addr := range own.Addrs {
				routing.Networks = append(routing.Networks, addr.Masked())
			}
		}
		for _, route := range sw.Routes {
			if !sw.Learned(route) {
				routing.Networks = append(routing.Networks, route.Dst)
			}
		}
	}
}
