package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"railbed/testbed/spec"
)

// CNIPlugins is the host's feature that management networks need.
const CNIPlugins = "cni-plugins"

// Management is the network beside the fabric, by which nodes and the host reach each
// other.
type Management struct {
	Subnet netip.Prefix `json:"subnet"`
	// Gateway is the bridge's, where published ports are; Host is the host's.
	Gateway netip.Addr `json:"gateway"`
	Host    netip.Addr `json:"host"`
}

// ManagementName is the NIC of nodes beside the fabric.
const ManagementName = "mgmt0"

// ManagementNIC is a node's NIC beside the fabric.
type ManagementNIC struct {
	Addr    netip.Prefix     `json:"addr"`
	Publish []spec.Published `json:"publish,omitempty"`
}

// addManagement gives the nodes that are to have one a NIC beside the fabric.
func (c *compiler) addManagement() {
	subnet := netip.MustParsePrefix(cmp.Or(c.t.Addressing.Management4, spec.DefaultManagement4))
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
		if n.Runtime != spec.Netns {
			c.once(path, "want runtime: netns, or remove management", "node %s has runtime: %s, and a network beside the fabric is for nodes of namespaces", n.Name, n.Runtime)
			continue
		}
		if c.plan.Management == nil {
			c.plan.Management = &Management{Subnet: subnet, Gateway: at(1), Host: at(size - 2)}
			c.require(CNIPlugins, "node "+n.Name+" has a network beside the fabric", path)
		}
		if next >= size-2 {
			c.once("addressing.management4", "want a shorter prefix", "%s has no address left for node %s beside the fabric", subnet, n.Name)
			return
		}
		n.Management = &ManagementNIC{Addr: netip.PrefixFrom(at(next), subnet.Bits())}
		next++
		for j, text := range settings.Publish {
			p, _ := spec.ParsePublished(text) // package spec has checked it
			key := fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
			if other, twice := published[key]; twice {
				c.once(fmt.Sprintf("%s.publish[%d]", path, j), "want another port of the host", "port %s is published for %s already", key, other)
				continue
			}
			published[key] = n.Name
			n.Management.Publish = append(n.Management.Publish, p)
		}
	}
}
