package fabric

import (
	"errors"
	"io/fs"

	"railbed/internal/kernel"
	"railbed/plan"
)

// addRDMA creates the RDMA devices of a host, once its interfaces have their addresses. The calling
// thread is in its namespace.
func (f *Fabric) addRDMA(h *host) error {
	for _, p := range h.ports {
		if p.RDMA == nil {
			continue
		}
		if f.options.Trace != nil {
			f.options.Trace(kernel.AddRDMALine(h.name, rdmaOf(p.Interface)))
		}
		if err := kernel.AddRDMA(rdmaOf(p.Interface)); err != nil {
			return err
		}
	}
	return nil
}

func rdmaOf(nic plan.Interface) kernel.RDMA {
	return kernel.RDMA{Kind: nic.RDMA.Kind, Name: nic.RDMA.Name, Dev: nic.Name}
}

// compareRDMA checks whether RDMA devices exist and can send from their interfaces' addresses. The
// kernel adds these addresses to a device a moment later.
func (f *Fabric) compareRDMA(h *host, d *differences) error {
	for _, p := range h.ports {
		if p.RDMA == nil {
			continue
		}
		name, want := h.at(p.Name), rdmaOf(p.Interface)
		state, err := kernel.ReadRDMA(want.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the kernel deletes it with its interface
			add := fix{passRoute, func(*repairer) error { return kernel.AddRDMA(want) }}
			d.add(name, []fix{add}, "add RDMA device %s to %s: kernel has no such device", want.Name, name)
			continue
		case err != nil:
			return err
		}
		if !state.Active && !f.links[p.link].isDown() {
			d.wait(name, nil, "activate RDMA device %s of %s: kernel has it inactive", want.Name, name)
		}
		for _, addr := range p.Addrs {
			if state.GIDs[addr.Addr()] != p.Name {
				d.wait(name, nil, "add RDMA device %s to %s: kernel has GIDs %v, want %s on %s",
					want.Name, name, state.GIDs, addr.Addr(), p.Name)
			}
		}
	}
	return nil
}
