package fabric

import (
	"railbed/fabric/kernel"
)

// Positions of an interface's own settings in what the kernel tells about it:
// IPV4_DEVCONF_* of include/uapi/linux/ip.h less one, and DEVCONF_* of ipv6.h.
const (
	inet4Forwarding = 0
	inet4RPFilter   = 7
	inet6Forwarding = 0
)

// compareSettings looks at the settings that an interface took over when it
// appeared. The larger of its own and the namespace's rp_filter counts, so the
// namespace's value alone proves nothing.
func (f *Fabric) compareSettings(h *host, p port, got kernel.Link, d *differences) {
	if h.bridge {
		return
	}
	check := func(what string, values []int32, position int, want int32) {
		if position < len(values) && values[position] != want {
			d.add("set %s of %s:%s: kernel has %d, want %d", what, h.name, p.Name, values[position], want)
		}
	}
	forwarding := int32(0)
	if h.router {
		forwarding = 1
	}
	check("ipv4 forwarding", got.Inet4, inet4Forwarding, forwarding)
	check("ipv6 forwarding", got.Inet6, inet6Forwarding, forwarding)
	check("ipv4 rp_filter", got.Inet4, inet4RPFilter, 0)
}
