package fabric

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"railbed/internal/kernel"
	"railbed/plan"
)

// resolutionQueue is how many bytes wait in a node for one neighbour's hardware address, until the
// resolver has run. The kernel's default, 208 KiB, is less than a transport's first window. Sockets
// still stop at the limits of their send buffers.
const resolutionQueue = 16 << 20

// resolvers answer requests of nodes' kernels for the hardware addresses of neighbours. Entries of
// each node for each other node would grow with the square of the nodes. And addresses that the
// kernel finds by itself share one cache of 1,024 entries on the whole host.
type resolvers struct {
	all     []*kernel.Resolver
	serving sync.WaitGroup
	lock    sync.Mutex
	errs    []error // guarded by lock
}

// setResolved finds the hosts whose NICs have no neighbour entries in the plan.
func (f *Fabric) setResolved(p *plan.Plan) {
	var neighbors map[netip.Addr]kernel.MAC
	for _, h := range f.hosts {
		if !h.node || !slices.ContainsFunc(h.ports, port.unresolved) {
			continue
		}
		if neighbors == nil {
			neighbors = map[netip.Addr]kernel.MAC{}
			for _, n := range p.Nodes {
				for _, nic := range n.NICs {
					for _, a := range nic.Addrs {
						neighbors[a.Addr()] = kernel.MAC(nic.MAC)
					}
				}
			}
		}
		h.neighbors = neighbors
	}
}

// unresolved reports whether the plan leaves the port's neighbours to be found.
func (p port) unresolved() bool { return len(p.Addrs) > 0 && len(p.Neighbors) == 0 }

// resolutions returns how the port finds neighbours, if not as the kernel does by default.
func (h *host) resolutions(p port) []kernel.Resolution {
	if h.neighbors == nil || !p.unresolved() {
		return nil
	}
	all := []kernel.Resolution{{Index: p.index, Requests: 1, QueueBytes: resolutionQueue}}
	if p.inet6() {
		all = append(all, all[0])
		all[1].IPv6 = true
	}
	return all
}

// resolve finds the hardware address of a neighbour on a port.
func (h *host) resolve(index int, addr netip.Addr) (dev string, mac kernel.MAC, found bool) {
	for _, p := range h.ports {
		if p.index == index && p.unresolved() &&
			slices.ContainsFunc(p.Addrs, func(a netip.Prefix) bool { return a.Contains(addr) }) {
			mac, found = h.neighbors[addr]
			return p.Name, mac, found
		}
	}
	return "", mac, false
}

// resolve starts to answer requests.
func (f *Fabric) resolve() error {
	r := &f.resolvers
	for _, h := range f.hosts {
		if h.neighbors == nil {
			continue
		}
		resolver, err := kernel.NewResolver(h.ns, h.name, f.options.Trace)
		if err != nil {
			return err
		}
		r.all = append(r.all, resolver)
		r.serving.Go(func() {
			if err := resolver.Serve(h.resolve); err != nil {
				r.lock.Lock()
				defer r.lock.Unlock()
				r.errs = append(r.errs, err)
			}
		})
	}
	return nil
}

// close ends the answers and returns their errors.
func (r *resolvers) close() error {
	var errs []error
	for _, resolver := range r.all {
		errs = append(errs, resolver.Close())
	}
	r.serving.Wait()
	return errors.Join(append(errs, r.errs...)...)
}

// compareResolution reads back how the host's NICs find neighbours.
func (h *host) compareResolution(conn *kernel.Conn, d *differences) error {
	if h.neighbors == nil {
		return nil
	}
	got, err := conn.Resolutions()
	if err != nil {
		return err
	}
	for _, p := range h.ports {
		for _, want := range h.resolutions(p) {
			have := kernel.Resolution{Index: want.Index, IPv6: want.IPv6}
			for _, r := range got {
				if r.Index == want.Index && r.IPv6 == want.IPv6 {
					have = r
				}
			}
			if have != want {
				set := request(passAddress, func(b *kernel.Batch) { b.SetResolution(p.Name, want) })
				d.add(h.at(p.Name), []fix{set}, "find neighbours of %s: kernel has %d requests and a "+
					"queue of %d bytes, want %d and %d", h.at(p.Name), have.Requests, have.QueueBytes,
					want.Requests, want.QueueBytes)
			}
		}
	}
	return nil
}
