package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/plan/spec"
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

// Daemons are the programs of a router.
func (r *Routing) Daemons() []string {
	if r.BFD > 0 {
		return []string{"zebra", "bgpd", "bfdd"}
	}
	return []string{"zebra", "bgpd"}
}

// ExecNodes are where a step's command runs: nodes, and for a pattern that matches none
// of them routers with daemons.
func (p *Plan) ExecNodes(patterns []string) (names []string) {
	for i := range p.Nodes {
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			return spec.Match(pattern, p.Nodes[i].Name)
		}) {
			names = append(names, p.Nodes[i].Name)
		}
	}
	for i := range p.Switches {
		if p.Switches[i].Routing != nil && slices.ContainsFunc(patterns, func(pattern string) bool {
			return p.ofSwitch(pattern, p.Switches[i].Name)
		}) {
			names = append(names, p.Switches[i].Name)
		}
	}
	return names
}

// ofSwitch reports whether a pattern is of a switch: it matches no node.
func (p *Plan) ofSwitch(pattern, name string) bool {
	return spec.Match(pattern, name) && !slices.ContainsFunc(p.Nodes, func(n Node) bool {
		return spec.Match(pattern, n.Name)
	})
}

// checkEnds refuses daemons that are not where a command is to end them.
func (c *compiler) checkEnds(path string, e *spec.Exec) {
	routed := c.t.Fabric.Routing
	for i, pattern := range e.Nodes {
		if routed == nil || !slices.ContainsFunc(c.plan.Switches, func(sw Switch) bool {
			return c.plan.ofSwitch(pattern, sw.Name)
		}) {
			c.wrong(fmt.Sprintf("%s.nodes[%d]", path, i),
				"name routers of fabric: {routing: {daemon: frr}}, or remove ends",
				"%q is no router with daemons to end", pattern)
			return
		}
	}
	there := (&Routing{BFD: time.Duration(routed.BFD)}).Daemons()
	for i, daemon := range e.Ends {
		if !slices.Contains(there, daemon) {
			c.wrong(fmt.Sprintf("%s.ends[%d]", path, i),
				"want "+strings.Join(there, " or ")+"; bfdd runs with fabric: {routing: {bfd: 100ms}}",
				"routers have no %s", daemon)
		}
	}
}

// checkRouting refuses daemons where there is no kernel's router for them.
func (c *compiler) checkRouting() {
	r := c.t.Fabric.Routing
	if r == nil {
		return
	}
	if len(c.plan.Switches) == 0 || c.plan.Switches[0].Kind != spec.Router {
		c.wrongKey("fabric.routing", "want switch: {kind: router}, whose routes are the kernel's, or "+
			"remove routing", "daemons have no routes to set in this fabric: its switches are no routers")
		return
	}
	for _, l := range c.plan.Links {
		if l.Weight > 1 {
			c.wrong(c.linkWeight(l), "remove it: BGP's paths of equal length have equal weights",
				"link %s has weight %d, and %s finds the routes", l.Name, l.Weight, r.Daemon)
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
			Daemon:    r.Daemon,
			MachineID: c.machineID(sw.Name),
			ASN:       asnOf(i),
			Networks:  slices.Clone(sw.Loopbacks),
			Keepalive: time.Duration(r.Keepalive), Hold: time.Duration(r.Hold), BFD: time.Duration(r.BFD),
		}
		sw.Routing = routing
		for p, port := range c.ports[i] {
			own := sw.Ports[p]
			if port.peer.isSwitch {
				peer := c.plan.Switches[port.peer.index]
				routing.Peers = append(routing.Peers,
					RoutingPeer{Switch: peer.Name, Dev: own.Name, Addr: c.iface(port.peer).Addrs[0].Addr(),
						ASN: asnOf(port.peer.index)})
				continue
			}
			for _, addr := range own.Addrs {
				routing.Networks = append(routing.Networks, addr.Masked())
			}
		}
		for route := range sw.Routes.All() {
			if !sw.Learned(route) {
				routing.Networks = append(routing.Networks, route.Dst)
			}
		}
	}
}
