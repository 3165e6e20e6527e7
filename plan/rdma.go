package plan

import (
	"fmt"
	"slices"

	"railbed/internal/infiniband"
	"railbed/plan/spec"
)

// RDMARXE is the host feature that RDMA devices in nodes with the host's kernel need.
const RDMARXE = "rdma-rxe"

// NodeRDMA is an RDMA device with its node and NIC.
type NodeRDMA struct {
	RDMADevice
	Node string `json:"node"`
	NIC  string `json:"nic"`
}

// RDMADevices returns all nodes' devices, in the order of their NICs.
func (p *Plan) RDMADevices() (all []NodeRDMA) {
	for _, n := range p.Nodes {
		for _, nic := range n.NICs {
			if nic.RDMA != nil {
				all = append(all, NodeRDMA{*nic.RDMA, n.Name, nic.Name})
			}
		}
	}
	return all
}

// rxeModules are the modules that a guest needs for rxe: the device itself, and rdma_cm for
// programs. Each of them loads the verbs.
var rxeModules = []string{"rdma_rxe", "rdma_ucm"}

// addRDMA gives NICs their RDMA devices, and guests the modules for these.
func (c *compiler) addRDMA() {
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		if n.RDMA != spec.RXE {
			continue
		}
		for j := range n.NICs {
			nic := &n.NICs[j]
			nic.RDMA = &RDMADevice{Kind: spec.RXE, Name: c.rdmaName(n, nic),
				PathMTU: infiniband.PathMTU(nic.MTU)}
		}
		if n.Runtime != spec.VM {
			continue
		}
		for _, module := range rxeModules {
			if !slices.Contains(n.Modules, module) {
				n.Modules = append(n.Modules, module)
			}
		}
	}
}

// rdmaName returns rxe_eth0 for a node with its own kernel. The host's kernel has one name space
// for the devices of all network namespaces, so names there also have a digest of testbed and node.
func (c *compiler) rdmaName(n *Node, nic *Interface) string {
	name := spec.RXE + "_" + nic.Name
	if n.Runtime != spec.VM {
		sum := c.digest("rdma", n.Name)
		name += fmt.Sprintf("_%x", sum[:4])
	}
	return name
}

// requireRDMA adds the requirements of RDMA devices on the host's kernel, at the first node that
// uses that kernel.
func (c *compiler) requireRDMA() {
	for _, n := range c.plan.Nodes {
		if n.RDMA == spec.RXE && n.Runtime != spec.VM {
			path := c.nodeSetting(n.Name, "rdma", func(n spec.Node) bool { return n.RDMA != "" })
			c.require(RDMARXE, "node "+n.Name+" has rdma: rxe and the host's kernel", path)
			return
		}
	}
}
