package forward

import (
	"fmt"
	"net/netip"
	"slices"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// Flow has the fields of a packet that switches hash, except for the IPv6 flow label.
type Flow struct {
	// Src is the source address. If it is invalid, the sender's socket is not bound, and the sender may use
	// every NIC that leads to the destination.
	Src, Dst netip.Addr
	// Protocol is the IP protocol. SrcPort and DstPort are its ports. Protocol 0 stands for unknown ports.
	Protocol         uint8
	SrcPort, DstPort uint16
}

// Paths finds the ways of flows through the soft switches of a plan, with all links up. It is not safe for
// concurrent use.
type Paths struct {
	plan   *plan.Plan
	tables map[string]Table
	far    map[plan.End]plan.End
	nics   map[netip.Addr]*plan.Interface // of nodes
	owner  map[netip.Addr]string          // nodes
}

// NewPaths makes the tables of all switches, as New does.
func NewPaths(p *plan.Plan) (*Paths, error) {
	made := &Paths{plan: p, tables: map[string]Table{}, far: map[plan.End]plan.End{},
		nics: map[netip.Addr]*plan.Interface{}, owner: map[netip.Addr]string{}}
	for i := range p.Switches {
		table, err := New(p, &p.Switches[i], nil, nil)
		if err != nil {
			return nil, err
		}
		made.tables[p.Switches[i].Name] = table
	}
	for _, l := range p.Links {
		made.far[l.A], made.far[l.B] = l.B, l.A
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, loopback := range n.Loopbacks {
			made.owner[loopback.Addr()] = n.Name
		}
		for j := range n.NICs {
			for _, addr := range n.NICs[j].Addrs {
				made.owner[addr.Addr()], made.nics[addr.Addr()] = n.Name, &n.NICs[j]
			}
		}
	}
	return made, nil
}

// Of returns the paths that packets of a flow may take from a node: for each path the ports that send the
// packets, from the node's NIC on. If a switch balances by a hash of the flow and the ports are known, the
// hash chooses one path. In all other cases each choice of a switch or of the sender's kernel is a path. It
// is an error if there are more than limit paths, or if the packets do not arrive at another node.
func (p *Paths) Of(node string, f Flow, limit int) (paths [][]plan.End, err error) {
	from := p.plan.Node(node)
	if from == nil {
		return nil, fmt.Errorf("no node is named %s", node)
	}
	var path []plan.End
	var follow func(at plan.End) error
	follow = func(at plan.End) error {
		path = append(path, at)
		defer func() { path = path[:len(path)-1] }()
		next := p.far[at].Node
		if len(path) > len(p.plan.Switches)+1 {
			return fmt.Errorf("packets to %v come back to %s", f.Dst, next)
		}
		if sw := p.plan.Switch(next); sw != nil {
			return eachHop(sw.Name, p.hops(sw, f), f.Dst, follow)
		}
		if p.owner[f.Dst] != next {
			return fmt.Errorf("packets to %v end at %s", f.Dst, next)
		}
		if len(paths) == limit {
			return fmt.Errorf("more than %d paths lead from %s to %v", limit, node, f.Dst)
		}
		paths = append(paths, slices.Clone(path))
		return nil
	}
	if p.owner[f.Dst] == node {
		return nil, fmt.Errorf("%v is an address of %s itself", f.Dst, node)
	}
	return paths, eachHop(node, sendsBy(from, f), f.Dst, follow)
}

// eachHop follows each port of a device. It is an error if there is none.
func eachHop(device string, ports []string, dst netip.Addr, follow func(plan.End) error) error {
	if len(ports) == 0 {
		return fmt.Errorf("no path leads from %s to %v", device, dst)
	}
	for _, port := range ports {
		if err := follow(plan.End{Node: device, Port: port}); err != nil {
			return err
		}
	}
	return nil
}

// hops returns the ports by which a switch may send packets of a flow.
func (p *Paths) hops(sw *plan.Switch, f Flow) (ports []string) {
	switch t := p.tables[sw.Name].(type) {
	case *bridge:
		if nic := p.nics[f.Dst]; nic != nil {
			if port, known := t.planned[addressOf(nic.MAC[:])]; known {
				ports = append(ports, sw.Ports[port].Name)
			}
		}
	case *router:
		dst := f.Dst.As16()
		e := t.lookup(&dst, f.Dst.Is4()).usable()
		if e == nil || e.kind != routed {
			return nil
		}
		if hashes := t.balance.kind == spec.Flow || t.balance.kind == spec.Polarised; hashes &&
			f.Protocol != 0 && f.Src.IsValid() {
			return []string{sw.Ports[t.balance.choose(0, e.group, f.packet()).port].Name}
		}
		for _, hop := range e.group.live {
			ports = append(ports, sw.Ports[hop.port].Name)
		}
	}
	return ports
}

// packet returns a packet of the flow that has only what choose reads.
func (f Flow) packet() *packet.Packet {
	h := wire.Headers{Src: f.Src.As16(), Dst: f.Dst.As16(), Protocol: f.Protocol, SrcPort: f.SrcPort,
		DstPort: f.DstPort, Flags: wire.IsIPv6}
	if f.Dst.Is4() {
		h.Flags = wire.IsIPv4
	}
	return &packet.Packet{Headers: h}
}

// sendsBy returns the NICs by which a node's routes send packets of a flow. Packets with the address of a
// NIC leave by the NIC's own table, all others by the main table.
func sendsBy(n *plan.Node, f Flow) (nics []string) {
	for _, rule := range n.Rules {
		if f.Src.IsValid() && rule.From.Contains(f.Src) {
			if nics = longest(n, rule.Table, f.Dst); nics != nil {
				return nics
			}
		}
	}
	return longest(n, 0, f.Dst)
}

// longest returns the NICs of the route with the longest prefix of an address in a table of a node. The
// main table also has the subnets of the NICs, as in the kernel.
func longest(n *plan.Node, table int, dst netip.Addr) (nics []string) {
	bits := -1
	for _, route := range n.Routes {
		if route.Table == table && route.Dst.Contains(dst) && route.Dst.Bits() > bits {
			bits, nics = route.Dst.Bits(), nil
			for _, hop := range route.NextHops {
				nics = append(nics, hop.Dev)
			}
		}
	}
	for _, nic := range n.NICs {
		for _, subnet := range nic.Addrs {
			if table == 0 && subnet.Masked().Contains(dst) && subnet.Bits() > bits {
				bits, nics = subnet.Bits(), []string{nic.Name}
			}
		}
	}
	return nics
}
