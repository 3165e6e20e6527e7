package kernel

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hop is how packets leave the calling thread's network namespace for an address.
type Hop struct {
	// Index is the interface's.
	Index int
	// Local is set if the address is one of the namespace's own.
	Local bool
	// MAC is the hardware address of the next station. Known is set if the kernel has it.
	MAC   MAC
	Known bool
}

// Routes looks up routes and neighbours of one network namespace.
type Routes struct{ handle *netlink.Handle }

// OpenRoutes opens the routes of the calling thread's network namespace.
func OpenRoutes() (*Routes, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &Routes{handle}, nil
}

// Close closes the connection to the kernel. A second Close does nothing.
func (r *Routes) Close() { r.handle.Close() }

// HopTo looks up how packets from a source address, sent by an interface, leave for a destination. It uses
// the routes and the neighbours, as rdma_resolve_addr(3) does, and sends nothing.
func (r *Routes) HopTo(dst, src netip.Addr, index int) (h Hop, err error) {
	routes, err := r.handle.RouteGetWithOptions(dst.AsSlice(),
		&netlink.RouteGetOptions{SrcAddr: src.AsSlice(), OifIndex: index})
	if err != nil || len(routes) == 0 {
		return h, fmt.Errorf("look up route from %v to %v: %w", src, dst, err)
	}
	h.Index, h.Local = routes[0].LinkIndex, routes[0].Type == unix.RTN_LOCAL
	via, ok := netip.AddrFromSlice(routes[0].Gw)
	if via = via.Unmap(); !ok {
		via = dst
	}
	if h.Local {
		return h, nil
	}
	of := netlink.FAMILY_V6
	if via.Is4() {
		of = netlink.FAMILY_V4
	}
	neighbors, err := r.handle.NeighList(h.Index, of)
	if err != nil {
		return h, fmt.Errorf("list neighbours: %w", err)
	}
	const resolved = netlink.NUD_PERMANENT | netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY |
		netlink.NUD_PROBE | netlink.NUD_NOARP
	for _, n := range neighbors {
		at, _ := netip.AddrFromSlice(n.IP)
		if at.Unmap() == via && n.State&resolved != 0 && len(n.HardwareAddr) == len(h.MAC) {
			h.MAC, h.Known = MAC(n.HardwareAddr), true
		}
	}
	return h, nil
}
