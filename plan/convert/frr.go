package convert

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// kindFRR is containerlab's kind of nodes that run FRRouting. Older labs have nodes of kind linux
// with an image of FRRouting.
const kindFRR = "frr"

// frrImage matches the images of FRRouting, such as frrouting/frr and quay.io/frrouting/frr:10.2.1.
var frrImage = regexp.MustCompile(`(^|/)(frrouting/[^/]+|frr)([:@][^/]*)?$`)

// isFRR reports whether a node runs FRRouting. An exported node keeps its image as it is.
func isFRR(d definition) bool {
	_, own := label(d.labels, labelNode)
	return !own && (d.kind.value == kindFRR ||
		d.kind.value == kindLinux && frrImage.MatchString(d.image.value))
}

// extras reads the settings of one kind of node. Of kind frr these are the daemons that run.
func (r *reader) extras(n *yaml.Node, called string) (daemons []text) {
	r.mapping(n, called, func(kind string, keyNode, value *yaml.Node) {
		if kind != kindFRR {
			r.add(placeOf(keyNode), "", "left out: %s of %s", kind, called)
			return
		}
		r.mapping(value, called+"."+kind, func(key string, keyNode, value *yaml.Node) {
			if key == "daemons" {
				daemons = r.texts(value, called+"."+kind+"."+key)
			} else {
				r.add(placeOf(keyNode), "", "left out: %s of %s.%s", key, called, kind)
			}
		})
	})
	return daemons
}

// Classes of notes about nodes that run FRRouting.
var (
	becomeFRR = class{"a node of FRRouting becomes a router, on which Railbed configures FRRouting",
		"nodes of FRRouting become routers, on which Railbed configures FRRouting",
		"install FRRouting on the host; railbed doctor frr tries it"}
	becomeStatic = class{"a node of FRRouting without a routing protocol becomes a switch that routes",
		"nodes of FRRouting without a routing protocol become switches that route", "the plan has all routes"}
	unreadFRR = class{"a node of FRRouting has no configuration that can be read",
		"nodes of FRRouting have no configuration that can be read",
		"want binds of /etc/frr or of files in it, or startup-config, and a file of that name"}
	alsoFRR = class{"a node of another kind runs FRRouting, too", "nodes of other kinds run FRRouting, too",
		"a fabric has routing daemons in all routers or in none"}
	otherASN = class{"an AS number is replaced by a private one", "AS numbers are replaced by private ones",
		"the plan gives each router its own, so that all sessions are of eBGP"}
	otherProtocol = class{"a protocol other than BGP is replaced by BGP",
		"protocols other than BGP are replaced by BGP",
		"routes have the fewest hops, and metrics and areas have no effect"}
	daemonOff = class{"a protocol is configured, and its daemon is off",
		"protocols are configured, and their daemons are off", ""}
	leftAddresses = class{"an address of a router is left out", "addresses of routers are left out",
		"the plan gives all interfaces addresses, and the names of nodes and routers lead to them"}
	leftLines = class{"a line of FRRouting's configuration is left out",
		"lines of FRRouting's configuration are left out", "neighbours, timers and BFD are taken over"}
	leftStatic = class{"a static route of a router is left out", "static routes of routers are left out",
		"the plan has routes to all nodes and routers"}
	leftTimers = class{"BGP timers are left out", "BGP timers are left out",
		"want the same ones in all routers, with a hold time of at least 3 s and three times the keepalive"}
	leftBFD       = class{"a BFD interval is left out", "BFD intervals are left out", "want 50 ms to 60 s"}
	leftNeighbour = class{"a BGP neighbour without a link to the router has no session",
		"BGP neighbours without a link to the router have no session",
		"want neighbours at the other ends of links"}
	moreSessions = class{"a link between routers has a session, and has none in the lab",
		"links between routers have a session, and have none in the lab",
		"a fabric has a session on each link between routers"}
	leftCommands = class{"a command of a router is left out", "commands of routers are left out",
		"a step exec runs a program in a router of routing daemons"}
)

// readRouters reads the configuration of the routers that run FRRouting.
func (i *importer) readRouters() {
	i.frr = map[string]*frrConfig{}
	for _, n := range i.lab.nodes {
		if name := n.name.value; i.roles[name] == router && isFRR(i.nodes[name]) {
			i.frr[name] = i.readFRR(name, i.nodes[name])
			i.addresses = append(i.addresses, i.frr[name].addresses...)
		}
	}
}

// addRouting makes FRRouting find the routes if it does so in the lab.
func (i *importer) addRouting() {
	dynamic := false
	for _, c := range i.frr {
		dynamic = dynamic || slices.ContainsFunc(c.protocols, func(l frrLine) bool { return c.runs(l.text) })
	}
	for _, n := range i.lab.nodes {
		name, at := n.name.value, i.problem(n.name.at)
		switch c := i.frr[name]; {
		case c == nil && i.roles[name] == router && dynamic:
			i.gather(alsoFRR, at, "%s", name)
		case c == nil:
		case dynamic:
			i.gather(becomeFRR, at, "%s", name)
		default:
			i.gather(becomeStatic, at, "%s", name)
		}
		if c := i.frr[name]; c != nil {
			if !c.read {
				i.gather(unreadFRR, at, "%s", name)
			}
			i.tellFRR(name, c)
		}
	}
	if !dynamic {
		return
	}
	i.testbed.Fabric.Switch.Kind = spec.Router
	routing := &spec.Routing{Daemon: spec.FRR}
	i.testbed.Fabric.Routing = routing
	i.tellSessions()
	for _, n := range i.lab.nodes {
		c := i.frr[n.name.value]
		if c == nil {
			continue
		}
		if c.speaks("bgp") {
			i.takeTimers(routing, c)
		}
		i.takeBFD(routing, c)
	}
}

// tellFRR notes the parts of a router's configuration that are left out or changed.
func (i *importer) tellFRR(name string, c *frrConfig) {
	if c.asn.text != "" {
		i.gather(otherASN, c.asn.at, "%s", c.asn.text)
	}
	for _, p := range c.protocols {
		switch {
		case !c.runs(p.text):
			i.gather(daemonOff, p.at, "%s: %s", name, p.text)
		case p.text != "bgp":
			i.gather(otherProtocol, p.at, "%s: %s", name, p.text)
		}
	}
	for _, a := range c.addresses {
		i.gather(leftAddresses, a.at, "%s: %s on %s", name, a.prefix, a.nic)
	}
	for _, l := range c.networks {
		prefix, err := netip.ParsePrefix(l.text)
		if !slices.ContainsFunc(i.addresses, func(a labAddress) bool {
			return err == nil && a.prefix.Masked() == prefix.Masked()
		}) {
			i.gather(leftLines, l.at, "%s: network %s", name, l.text)
		}
	}
	for _, l := range c.left {
		i.gather(leftLines, l.at, "%s", l.text)
	}
	for _, l := range c.static {
		i.gather(leftStatic, l.at, "%s", l.text)
	}
}

// takeTimers takes over BGP's timers if Railbed can have them, and if no other router has others.
func (i *importer) takeTimers(r *spec.Routing, c *frrConfig) {
	if c.timers.text == "" {
		return
	}
	keepalive, hold, err := c.timers.seconds()
	const second = units.Duration(time.Second)
	k, h := units.Duration(keepalive)*second, units.Duration(hold)*second
	if err != nil || keepalive < 1 || hold < 3 || 3*keepalive > hold || hold > 65535 ||
		r.Hold != 0 && (r.Keepalive != k || r.Hold != h) {
		i.gather(leftTimers, c.timers.at, "%s", c.timers.text)
		return
	}
	r.Keepalive, r.Hold = k, h
}

// takeBFD takes over the shortest interval of BFD.
func (i *importer) takeBFD(r *spec.Routing, c *frrConfig) {
	if c.bfd.text == "" {
		return
	}
	milliseconds, err := c.bfd.milliseconds()
	if err != nil || milliseconds < 50 || milliseconds > 60_000 {
		i.gather(leftBFD, c.bfd.at, "%s", c.bfd.text)
		return
	}
	interval := units.Duration(time.Duration(milliseconds) * time.Millisecond)
	if r.BFD == 0 || interval < r.BFD {
		r.BFD = interval
	}
}

// tellSessions compares the sessions of the lab with the links between routers, each of which has a
// session in the testbed.
func (i *importer) tellSessions() {
	linked := map[string][]string{} // the interfaces, and the addresses at the other ends, by node
	for _, l := range i.lab.links {
		for side, end := range l.ends {
			linked[end.node] = append(linked[end.node], end.port)
			linked[end.node] = append(linked[end.node], i.addressesOf(l.ends[1-side])...)
		}
	}
	for _, l := range i.lab.links {
		a, b := i.frr[l.ends[0].node], i.frr[l.ends[1].node]
		if a == nil || b == nil {
			continue
		}
		has := func(c *frrConfig, own, other labEnd) bool {
			return c.speaks("bgp") && slices.ContainsFunc(c.neighbors, func(n frrLine) bool {
				return n.text == own.port || slices.Contains(i.addressesOf(other), n.text)
			})
		}
		interior := slices.ContainsFunc(a.protocols, func(p frrLine) bool {
			return p.text != "bgp" && a.speaks(p.text) && b.speaks(p.text)
		})
		if !interior && !has(a, l.ends[0], l.ends[1]) && !has(b, l.ends[1], l.ends[0]) {
			i.gather(moreSessions, i.problem(l.at), "%s:%s -- %s:%s", l.ends[0].node, l.ends[0].port,
				l.ends[1].node, l.ends[1].port)
		}
	}
	for _, n := range i.lab.nodes {
		c := i.frr[n.name.value]
		if c == nil || !c.speaks("bgp") {
			continue
		}
		for _, neighbour := range c.neighbors {
			_, err := netip.ParseAddr(neighbour.text) // else it is an interface or a group
			if err == nil && !slices.Contains(linked[n.name.value], neighbour.text) {
				i.gather(leftNeighbour, neighbour.at, "%s: %s", n.name.value, neighbour.text)
			}
		}
	}
}

// leaveFRR notes the other settings of a node that runs FRRouting.
func (i *importer) leaveFRR(name string, d definition) {
	d.image = text{}
	d.binds = slices.DeleteFunc(slices.Clone(d.binds), func(bind text) bool {
		_, to, _ := strings.Cut(bind.value, ":")
		return to == frrFolder || strings.HasPrefix(to, frrFolder+"/") || strings.HasPrefix(to, frrFolder+":")
	})
	d.sysctls = slices.DeleteFunc(slices.Clone(d.sysctls), func(s setting) bool {
		return strings.HasSuffix(s.key, "forward") || strings.HasSuffix(s.key, "forwarding")
	})
	for _, command := range d.exec {
		i.gather(leftCommands, i.problem(command.at), "%s: %s", name, command.value)
	}
	d.exec = nil
	i.leaveOut(name, d)
}
