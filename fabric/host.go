package fabric

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/fabric/kernelswitch"
	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/plan/spec"
)

// host is the requested contents of one namespace of a plan, which is a node or a switch.
type host struct {
	name    string
	ns      *kernel.Namespace
	node    bool
	router  bool
	bridge  bool
	guest   bool       // a node whose stack is not here: see guestSide
	managed bool       // has a management NIC, which is not ours
	mirrors *plan.Node // the node if its NICs have mirrors, or nil
	// neighbors holds the hardware addresses of all NICs of the plan, if the host's NICs have no
	// neighbour entries in the plan.
	neighbors map[netip.Addr]kernel.MAC
	ports     []port
	portIndex map[string]int // interface index by name
	loopbacks []kernel.Address
	routes    []kernel.Route
	learned   *learned // of a router with daemons, which add its other routes
	rules     []kernel.Rule
	sysctls   []kernel.Sysctl
}

// port is an interface of a host.
type port struct {
	plan.Interface
	index int
	link  int  // in Fabric.links
	atA   bool // the port is end A of its link
}

// Interface indexes. The kernel counts them per namespace, and may give the same index to the two
// ends of a veth. It then takes such an end for a device without a peer, and reports its carrier up
// to a second late. So every end has a different index, in the order of the plan's links, which is
// the same in each run.
const (
	loopbackIndex = 1
	bridgeIndex   = 100
	firstIndex    = 101
)

func endIndex(first, link int, atA bool) int {
	if atA {
		return first + 2*link
	}
	return first + 2*link + 1
}

// newHosts returns the hosts of a plan, in its order, with interface indexes from first on. It
// reports everything in the plan that the kernel would refuse.
func newHosts(p *plan.Plan, first int, namespaces map[string]*kernel.Namespace) ([]*host, error) {
	var errs []error
	ends := map[plan.End]port{}
	for i, l := range p.Links {
		ends[l.A] = port{index: endIndex(first, i, true), link: i, atA: true}
		ends[l.B] = port{index: endIndex(first, i, false), link: i}
	}
	var hosts []*host
	add := func(name string, interfaces []plan.Interface) *host {
		h := &host{name: name, ns: namespaces[name], portIndex: map[string]int{"lo": loopbackIndex}}
		if h.ns == nil {
			errs = append(errs, fmt.Errorf("build %s: no namespace; every node and switch needs one", name))
		}
		for _, i := range interfaces {
			end, linked := ends[plan.End{Node: name, Port: i.Name}]
			switch {
			case !linked:
				errs = append(errs, fmt.Errorf("build %s:%s: no link ends here", name, i.Name))
			case !kernel.ValidName(i.Name):
				errs = append(errs, fmt.Errorf("build %s:%s: want an interface name of 1 to 15 bytes "+
					"without slash, colon or space", name, i.Name))
			default:
				delete(ends, plan.End{Node: name, Port: i.Name})
			}
			end.Interface = i
			h.ports = append(h.ports, end)
			h.portIndex[i.Name] = end.index
		}
		hosts = append(hosts, h)
		return h
	}
	for _, n := range p.Nodes {
		guest := n.Runtime == spec.VM || n.Runtime == spec.CNI
		sysctls, err := nodeSysctls(n) // wrong settings of a guest are reported here, too
		if guest {
			n, sysctls = guestSide(n), kernelswitch.SilentSysctls()
		}
		h := add(n.Name, n.NICs)
		errs = append(errs, err, h.setRouting(n.Loopbacks, n.Routes, n.Rules))
		h.dilate(clock.Dilation(p.Dilation))
		h.sysctls, h.node, h.guest, h.managed = sysctls, true, guest, n.Management != nil
		if n.Mirror {
			h.mirrors = &n
		}
	}
	for _, s := range p.Switches {
		h := add(s.Name, s.Ports)
		errs = append(errs, h.setRouting(s.Loopbacks, s.Routes.List(), nil), h.setLearned(p, &s))
		if s.Name == SoftSide {
			h.sysctls = kernelswitch.SilentSysctls()
			continue
		}
		if h.bridge = s.Kind == spec.Bridge; h.bridge {
			h.sysctls = kernelswitch.BridgeSysctls()
			h.portIndex[kernelswitch.BridgeName] = bridgeIndex
			errs = append(errs, kernelswitch.CheckBridgePorts(s.Name, len(s.Ports)))
		} else {
			h.sysctls, h.router = kernelswitch.RouterSysctls(), true
			if s.Routes.Choice() {
				h.sysctls = append(h.sysctls, kernelswitch.MultipathSysctls(s.HashSeed)...)
			}
		}
	}
	for end := range ends {
		errs = append(errs, fmt.Errorf("build %s:%s: a link ends here, and the plan has no such interface",
			end.Node, end.Port))
	}
	return hosts, errors.Join(errs...)
}

func multipath(routes []plan.Route) bool {
	return slices.ContainsFunc(routes, func(r plan.Route) bool { return len(r.NextHops) > 1 })
}

// nodeSeed returns the seed of a node's own choice among equal-cost paths, for nodes whose loopback
// is reached over two NICs. It is part of the machine ID, which the plan makes unique, and the same
// in every run.
func nodeSeed(n plan.Node) uint32 {
	id, err := hex.DecodeString(n.MachineID)
	if err != nil || len(id) < 4 {
		return 0
	}
	return uint32(id[0])<<24 | uint32(id[1])<<16 | uint32(id[2])<<8 | uint32(id[3])
}

// setRouting translates loopbacks, routes and rules to interface indexes.
func (h *host) setRouting(loopbacks []netip.Prefix, routes []plan.Route, rules []plan.Rule) error {
	var errs []error
	for _, prefix := range loopbacks {
		h.loopbacks = append(h.loopbacks, kernel.Address{Index: loopbackIndex, Prefix: prefix})
	}
	for _, r := range routes {
		route := kernel.Route{Dst: r.Dst, Table: r.Table, Src: r.Src}
		for _, hop := range r.NextHops {
			index, known := h.portIndex[hop.Dev]
			if !known {
				errs = append(errs, fmt.Errorf("route %s of %s: it has no interface %s", r.Dst, h.name,
					hop.Dev))
			}
			route.Hops = append(route.Hops,
				kernel.NextHop{Via: hop.Via, Index: index, Dev: hop.Dev, Weight: max(hop.Weight, 1)})
		}
		if len(route.Hops) == 0 {
			errs = append(errs, fmt.Errorf("route %s of %s: no next hop, want at least one", r.Dst, h.name))
		}
		h.routes = append(h.routes, route)
	}
	for _, r := range rules {
		h.rules = append(h.rules, kernel.Rule{Priority: r.Priority, From: r.From, Table: r.Table})
	}
	return errors.Join(errs...)
}

// tcpLeastTimeout is Linux's TCP_RTO_MIN.
const tcpLeastTimeout = 200 * time.Millisecond

// dilate applies the dilation to the only timer of the kernel's TCP that can be changed: the least
// retransmission timeout, on every route of the plan.
func (h *host) dilate(by clock.Dilation) {
	if by <= 1 {
		return
	}
	for i := range h.routes {
		h.routes[i].RTOMin = by.Wait(tcpLeastTimeout)
	}
}

// early returns the settings that are written before the host has interfaces, so that new
// interfaces copy them. Late returns the settings of single interfaces, and the setting that
// ignores routes without carrier. A link has no carrier until both of its ends are up, and before
// that the kernel would refuse gateways on it.
func (h *host) early() []kernel.Sysctl { return h.sysctlsWhere(false) }
func (h *host) late() []kernel.Sysctl  { return h.sysctlsWhere(true) }

func (h *host) sysctlsWhere(late bool) []kernel.Sysctl {
	var chosen []kernel.Sysctl
	for _, s := range h.sysctls {
		isLate := slices.ContainsFunc(strings.Split(s.Path, "/"), func(part string) bool {
			_, known := h.portIndex[part]
			return known && part != "lo" || part == "ignore_routes_with_linkdown"
		})
		if isLate == late {
			chosen = append(chosen, s)
		}
	}
	return chosen
}
