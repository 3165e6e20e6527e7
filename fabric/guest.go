package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
)

// guestSide returns a node for its namespace on this host if the node itself is a virtual machine
// or a container of another runtime. The namespace only has the node's NICs. Their frames are
// passed to the guest, or the NICs wait for the container. There is nothing that would answer in
// the node's place.
func guestSide(n plan.Node) plan.Node {
	n.Loopbacks, n.Routes, n.Rules, n.Sysctls = nil, nil, nil, nil
	n.NICs = slices.Clone(n.NICs)
	for i := range n.NICs {
		n.NICs[i].Addrs, n.NICs[i].Neighbors, n.NICs[i].RDMA = nil, nil, nil
	}
	return n
}

// withoutIngress leaves out the discipline that passes frames to a guest (nodes/vm) or holds the program of
// faults: it is not part of a link.
func withoutIngress(qdiscs []kernel.Qdisc) []kernel.Qdisc {
	return slices.DeleteFunc(slices.Clone(qdiscs), func(q kernel.Qdisc) bool {
		return q.Parent == kernel.Ingress
	})
}

// ConfigureGuest does for a whole kernel what Build does for a node's namespace; the kernel's first
// process calls it. It sets and reads back settings, names, MTUs, offloads, addresses, neighbours,
// routes, rules and RDMA devices. The node's NICs appear when it calls appear; it identifies them
// by their hardware addresses. Links are shaped on the host.
func ConfigureGuest(n plan.Node, dilation uint64, appear func() error) error {
	h := &host{name: n.Name, node: true, portIndex: map[string]int{"lo": loopbackIndex},
		managed: n.Management != nil}
	f := &Fabric{}
	for i, nic := range n.NICs {
		h.ports = append(h.ports, port{Interface: nic, link: i})
		h.portIndex[nic.Name] = 0 // until it appears
		f.links = append(f.links, &planLink{Link: plan.Link{MTU: nic.MTU}})
	}
	var err error
	if h.sysctls, err = nodeSysctls(n); err != nil {
		return err
	}
	if err := kernel.SetSysctls(h.early()); err != nil {
		return err
	}
	if err := appear(); err != nil {
		return err
	}
	if err := h.configureManagement(n.Management); err != nil {
		return err
	}
	if err := h.nameNICs(); err != nil {
		return err
	}
	if err := h.setRouting(n.Loopbacks, n.Routes, n.Rules); err != nil {
		return err
	}
	h.dilate(clock.Dilation(dilation))
	if err := f.configure(h); err != nil {
		return err
	}
	return settleBy(context.Background(), func() (*differences, error) { return f.compareGuest(h) })
}

// compareGuest is compare in the guest, which has no data about the peers of its NICs.
func (f *Fabric) compareGuest(h *host) (*differences, error) {
	d := &differences{}
	conn, err := kernel.Open()
	if err != nil {
		return d, err
	}
	defer conn.Close()
	f.compareSysctls(h, d)
	got, err := read(conn)
	if err != nil {
		return d, err
	}
	f.compareLoopback(h, got.byIndex[loopbackIndex], d)
	for _, p := range h.ports {
		l := got.byIndex[p.index]
		f.comparePort(h, p, l, d)
		if err := f.compareOffloads(h, p, l, conn, d); err != nil {
			return d, err
		}
	}
	f.compareStack(h, got, d)
	return d, f.compareRDMA(h, d)
}

// nicPatience is how long a NIC may take to appear once its driver is loaded.
const nicPatience = time.Minute

// configureManagement does in a guest what plugins do in other nodes. It names the management NIC
// first, because that NIC may have the name of another one. Then it sets the NIC's address and the
// default route.
func (h *host) configureManagement(m *plan.ManagementNIC) error {
	if m == nil {
		return nil
	}
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	index := 0
	err = awaitNICs(func() (missing string, err error) {
		links, err := conn.Links(false)
		at := slices.IndexFunc(links, func(l kernel.Link) bool { return l.MAC == kernel.MAC(m.Guest.MAC) })
		if err != nil || at < 0 {
			return plan.ManagementName, err
		}
		index = links[at].Index
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("name NICs of %s: %w", h.name, err)
	}
	batch := kernel.NewBatch(h.name, nil)
	batch.SetName(plan.ManagementName, index, plan.ManagementName)
	batch.AddAddress(plan.ManagementName, index, m.Addr)
	batch.AddAddress(plan.ManagementName, index, m.Addr6)
	batch.SetUp(plan.ManagementName, index, true)
	if m.Internet {
		batch.AddRoute(kernel.Route{
			Dst:  netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			Hops: []kernel.NextHop{{Via: m.Guest.Gateway, Index: index, Dev: plan.ManagementName}},
		})
	}
	return conn.Do(batch)
}

// awaitNICs calls ask for the missing NIC until none is missing.
func awaitNICs(ask func() (missing string, err error)) error {
	for deadline := time.Now().Add(nicPatience); ; time.Sleep(2 * time.Millisecond) {
		missing, err := ask()
		if err != nil || missing == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kernel has no interface with the hardware address of %s", missing)
		}
	}
}

// nameNICs finds the NICs and sets their names and MTUs.
func (h *host) nameNICs() error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := awaitNICs(func() (missing string, err error) { return h.findNICs(conn) }); err != nil {
		return fmt.Errorf("name NICs of %s: %w", h.name, err)
	}
	batch := kernel.NewBatch(h.name, nil)
	for _, p := range h.ports { // two may have each other's name
		batch.SetName(p.Name, p.index, fmt.Sprintf("if%d", p.index))
	}
	for _, p := range h.ports {
		batch.SetName(p.Name, p.index, p.Name)
		batch.SetMTU(p.Name, p.index, p.MTU)
		batch.SetMaxSegments(p.Name, p.index, (&Fabric{}).shaping(&planLink{}, true).MaxSegments())
	}
	return conn.Do(batch)
}

// findNICs fills in the indexes, and returns the first missing NIC.
func (h *host) findNICs(conn *kernel.Conn) (missing string, err error) {
	links, err := conn.Links(false)
	if err != nil {
		return "", err
	}
	for i := range h.ports {
		p := &h.ports[i]
		at := slices.IndexFunc(links, func(l kernel.Link) bool { return l.MAC == kernel.MAC(p.MAC) })
		if at < 0 {
			return p.Name, nil
		}
		p.index = links[at].Index
		h.portIndex[p.Name] = p.index
	}
	return "", nil
}
