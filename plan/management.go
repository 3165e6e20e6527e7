package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"railbed/plan/spec"
)

// CNIPlugins is the host feature that management networks need.
const CNIPlugins = "cni-plugins"

// Management is the management network, by which nodes and the host reach each other. It is not
// part of the fabric.
type Management struct {
	Subnet netip.Prefix `json:"subnet"`
	// Gateway is the address of the bridge, which has the published ports. Host is the address of
	// the host.
	Gateway netip.Addr `json:"gateway"`
	Host    netip.Addr `json:"host"`
	// The same for IPv6.
	Subnet6  netip.Prefix `json:"subnet6"`
	Gateway6 netip.Addr   `json:"gateway6"`
	Host6    netip.Addr   `json:"host6"`
	// Where holds positions in the file, as file:line:column. The keys "subnet" and "subnet6" give
	// the setting that needs the network, another key gives internet, and keys such as "8080/tcp"
	// give published ports.
	Where map[string]string `json:"where"`
}

// ManagementName is the name of the nodes' management NIC.
const ManagementName = "mgmt0"

// ManagementNIC is a node's NIC in the management network.
type ManagementNIC struct {
	Addr    netip.Prefix     `json:"addr"`
	Addr6   netip.Prefix     `json:"addr6"`
	Publish []spec.Published `json:"publish,omitempty"`
	// Internet reports whether the node can reach the networks that the host reaches.
	Internet bool `json:"internet,omitempty"`
	// DNS lists the name servers of the node.
	DNS []string `json:"dns,omitempty"`
	// Guest is the configuration that a virtual machine applies to the NIC itself.
	Guest *GuestManagement `json:"guest,omitempty"`
}

// GuestManagement is the management NIC of a virtual machine.
type GuestManagement struct {
	MAC     MAC        `json:"mac"`
	Gateway netip.Addr `json:"gateway"`
}

// GuestNICs returns the NICs of a virtual machine: the NICs in the fabric, then the management NIC.
func (n *Node) GuestNICs() []Interface {
	if n.Management == nil || n.Management.Guest == nil {
		return n.NICs
	}
	const mtu = 1500 // the MTU that the plugins set
	return append(slices.Clone(n.NICs),
		Interface{Name: ManagementName, MAC: n.Management.Guest.MAC, MTU: mtu})
}

// DrawManagement returns a subnet for a testbed whose file gives none. Two testbeds on a host have
// different names and therefore, as a rule, different subnets. Other values of turn give other
// subnets, for use if one is taken.
func DrawManagement(testbed string, turn int) netip.Prefix {
	pool := netip.MustParsePrefix(spec.DefaultManagement4)
	digest := fnv.New32a()
	digest.Write([]byte(testbed))
	const bits = 24
	raw := pool.Addr().As4()
	at := (digest.Sum32() + uint32(turn)) % (1 << (bits - pool.Bits()))
	binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+at<<(32-bits))
	return netip.PrefixFrom(netip.AddrFrom4(raw), bits)
}

// DrawManagement6 does as DrawManagement for IPv6.
func DrawManagement6(testbed string, turn int) netip.Prefix {
	pool := netip.MustParsePrefix(spec.DefaultManagement6)
	digest := fnv.New32a()
	digest.Write([]byte(testbed))
	raw := pool.Addr().As16()
	binary.BigEndian.PutUint16(raw[6:], uint16(digest.Sum32()+uint32(turn)))
	return netip.PrefixFrom(netip.AddrFrom16(raw), 64)
}

// hostIn6 is the end of the host's address in an IPv6 subnet. No node has it.
const hostIn6 = 1<<16 - 1

// in6 returns the address of an IPv6 subnet with the given end.
func in6(subnet netip.Prefix, end uint16) netip.Addr {
	raw := subnet.Addr().As16()
	binary.BigEndian.PutUint16(raw[14:], end)
	return netip.AddrFrom16(raw)
}

// subnet6 returns the IPv6 subnet of the management network.
func (c *compiler) subnet6() netip.Prefix {
	given := c.t.Addressing.Management6
	if given == "" {
		return DrawManagement6(c.t.Name, 0)
	}
	subnet := netip.MustParsePrefix(given)
	if subnet.Bits() > 112 {
		c.once("addressing.management6", "want a prefix of at most 112 bits",
			"%s is too small for the management network", subnet)
	}
	return subnet
}

// addManagement adds management NICs to the nodes whose settings ask for one.
func (c *compiler) addManagement() {
	subnet := DrawManagement(c.t.Name, 0)
	if given := c.t.Addressing.Management4; given != "" {
		subnet = netip.MustParsePrefix(given)
	}
	subnet6 := c.subnet6()
	raw := subnet.Addr().As4()
	first := binary.BigEndian.Uint32(raw[:])
	at := func(offset uint32) netip.Addr {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], first+offset)
		return netip.AddrFrom4(raw)
	}
	size := uint32(min(1<<31, room(subnet)))
	published := map[string]string{}
	next := uint32(2)
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		settings := c.t.NodeFor(n.Name).Management
		if settings == nil {
			continue
		}
		path := c.nodeSetting(n.Name, "management", func(n spec.Node) bool { return n.Management != nil })
		if n.Runtime == spec.CNI {
			c.once(path, "want runtime: netns, docker or vm, or remove management",
				"node %s has runtime: %s, and only nodes that Railbed makes can have management",
				n.Name, n.Runtime)
			continue
		}
		if c.plan.Management == nil {
			c.plan.Management = c.newManagement(subnet, subnet6, at(1), at(size-2), path)
			c.require(CNIPlugins, "node "+n.Name+" has management", path)
		}
		if next >= min(size-2, hostIn6) {
			c.once("addressing.management4", "want a shorter prefix",
				"%s has no management address left for node %s", subnet, n.Name)
			return
		}
		n.Management = &ManagementNIC{
			Addr:     netip.PrefixFrom(at(next), subnet.Bits()),
			Addr6:    netip.PrefixFrom(in6(subnet6, uint16(next)), subnet6.Bits()),
			Internet: settings.Internet,
			DNS:      settings.DNS,
		}
		if n.Runtime == spec.VM {
			n.Management.Guest = &GuestManagement{MAC: MAC{2, 'R', 'B', 2, byte(next >> 8), byte(next)},
				Gateway: c.plan.Management.Gateway}
		}
		next++
		if settings.Internet {
			c.plan.Management.Where["internet"] = cmp.Or(c.plan.Management.Where["internet"],
				c.place(path+".internet"))
			c.leaveDefault(n)
		}
		c.publish(n, settings.Publish, path, published)
	}
}

// place returns the position of a setting in the file.
func (c *compiler) place(path string) string { return c.t.Source.Pos(path).String() }

// newManagement creates the management network for the first node that has a NIC in it. The path is
// that of the node's setting.
func (c *compiler) newManagement(
	subnet, subnet6 netip.Prefix, gateway, host netip.Addr, path string,
) *Management {
	where := map[string]string{"subnet": c.place(path), "subnet6": c.place(path)}
	if c.t.Addressing.Management4 != "" {
		where["subnet"] = c.place("addressing.management4")
	}
	if c.t.Addressing.Management6 != "" {
		where["subnet6"] = c.place("addressing.management6")
	}
	return &Management{
		Subnet: subnet, Gateway: gateway, Host: host,
		Subnet6: subnet6, Gateway6: in6(subnet6, 1), Host6: in6(subnet6, hostIn6), Where: where,
	}
}

// publish adds the published ports of a node, except ports that another node has.
func (c *compiler) publish(n *Node, ports []string, path string, published map[string]string) {
	for j, text := range ports {
		p, _ := spec.ParsePublished(text) // package spec has checked it
		key, at := p.String(), fmt.Sprintf("%s.publish[%d]", path, j)
		if other, twice := published[key]; twice {
			c.once(at, "want another port of the host", "port %s is published for %s already", key, other)
			continue
		}
		published[key], c.plan.Management.Where[key] = n.Name, c.place(at)
		n.Management.Publish = append(n.Management.Publish, p)
	}
}

// leaveDefault narrows the node's default route, which leads to other nodes, to addresses of the
// fabric. All other destinations are reached through the host.
func (c *compiler) leaveDefault(n *Node) {
	links := netip.MustParsePrefix(cmp.Or(c.t.Addressing.Links4, spec.DefaultLinks4))
	for i := range n.Routes {
		if r := &n.Routes[i]; r.Table == 0 && r.Dst == defaults[0] {
			r.Dst = links
		}
	}
}
