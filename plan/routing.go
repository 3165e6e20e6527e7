package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/plan/spec"
)

// Routing configures the daemons of a router, which find routes. The router's Routes has the routes
// that they must find, see Learned.
type Routing struct {
	Daemon string `json:"daemon"` // spec.FRR
	// MachineID is the machine ID of the node in which the daemons run.
	MachineID string `json:"machine_id"`
	// ASN is the router's AS number in BGP. It is private (RFC 6996) and unique.
	ASN uint32 `json:"asn"`
	// Peers holds the neighbours, one for each link. BGP carries both families' routes over IPv4.
	// FRRouting has no session over IPv6 without a link-local address, which the plan's interfaces
	// do not have.
	Peers []RoutingPeer `json:"peers"`
	// Networks holds the networks that the router announces: its own addresses and those of its
	// nodes.
	Networks []netip.Prefix `json:"networks"`
	// Keepalive, Hold and BFD are the values of the file. A BFD of 0 means no BFD.
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

// firstASN is the first private AS number of four bytes. There are 94,967,295.
const firstASN = 4200000000

func asnOf(sw int) uint32 { return firstASN + uint32(sw) }

// Learned reports whether a daemon finds the route. Daemons find the routes to other routers, and
// the plan sets the others.
func (s *Switch) Learned(r Route) bool {
	return s.Routing != nil && slices.ContainsFunc(r.NextHops, func(hop NextHop) bool {
		return slices.ContainsFunc(s.Routing.Peers, func(p RoutingPeer) bool { return p.Dev == hop.Dev })
	})
}

// Daemons returns the programs of a router.
func (r *Routing) Daemons() []string {
	if r.BFD > 0 {
		return []string{"zebra", "bgpd", "bfdd"}
	}
	return []string{"zebra", "bgpd"}
}

// ExecNodes returns the names of the nodes in which a step's command runs. For a pattern that
// matches no node, it returns the matching routers with daemons.
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

// ofSwitch reports whether a pattern matches a switch and no node.
func (p *Plan) ofSwitch(pattern, name string) bool {
	return spec.Match(pattern, name) && !slices.ContainsFunc(p.Nodes, func(n Node) bool {
		return spec.Match(pattern, n.Name)
	})
}

var _ = checkStep((*compiler).checkExec)

// checkExec reports commands in nodes and switches that do not exist, or in switches that run no programs.
func (c *compiler) checkExec(w *words, path string, e *spec.Exec) {
	for i, name := range e.Nodes {
		at := fmt.Sprintf("%s.nodes[%d]", path, i)
		switch {
		case !slices.ContainsFunc(w.switches, func(sw string) bool { return c.plan.ofSwitch(name, sw) }):
			w.name(at, name, "node", w.nodes)
		case c.t.Fabric.Routing == nil:
			c.wrong(at, "name nodes, or set fabric: {switch: {kind: router}, routing: {daemon: frr}}",
				"%q is a switch without daemons, in which no programs run", name)
		}
	}
	if len(e.Ends) > 0 {
		c.checkEnds(path, e)
	}
}

// checkEnds reports daemons that do not run where a command must end them.
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

// checkRouting reports routing daemons in a fabric without kernel routers.
func (c *compiler) checkRouting() {
	r := c.t.Fabric.Routing
	if r == nil {
		return
	}
	if len(c.plan.Switches) == 0 || c.plan.Switches[0].Kind != spec.Router {
		c.wrongKey("fabric.routing", "want switch: {kind: router}, or remove routing",
			"routing daemons need kernel routers, and this fabric has none")
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

// addRouting decides the peers and networks of the routers' daemons.
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
