package fabric

import (
	"fmt"

	"railbed/internal/kernel"
)

// Positions of an interface's own settings in the kernel's report about it: IPV4_DEVCONF_* of
// include/uapi/linux/ip.h less one, and DEVCONF_* of ipv6.h.
const (
	inet4Forwarding = 0
	inet4RPFilter   = 7
	inet6Forwarding = 0
	inet6Disabled   = 26
)

// compareSettings compares the settings that an interface copied when it was created, or that the file
// gives it. The kernel
// uses the larger of the interface's and the namespace's rp_filter, so the namespace's value alone
// proves nothing.
func (f *Fabric) compareSettings(h *host, p port, got kernel.Link, d *differences) {
	if h.bridge {
		return
	}
	check := func(at pass, version string, values []int32, position int, name string, ours int32) {
		want := h.interfaceSetting(version, p.Name, name, ours)
		if position >= len(values) || values[position] == want {
			return
		}
		path := fmt.Sprintf("net/%s/conf/%s/%s", version, p.Name, name)
		set := f.setting(at, h, kernel.Sysctl{Path: path, Value: fmt.Sprint(want)})
		d.add(h.at(p.Name), []fix{set}, "set %s %s of %s:%s: kernel has %d, want %d", version, name, h.name,
			p.Name, values[position], want)
	}
	forwarding := int32(0)
	if h.router {
		forwarding = 1
	}
	if p.inet6() { // before its addresses
		check(passPort, "ipv6", got.Inet6, inet6Disabled, "disable_ipv6", 0)
	}
	check(passRoute, "ipv4", got.Inet4, inet4Forwarding, "forwarding", forwarding)
	check(passRoute, "ipv6", got.Inet6, inet6Forwarding, "forwarding", forwarding)
	check(passRoute, "ipv4", got.Inet4, inet4RPFilter, "rp_filter", 0)
}

// compareLoopback compares the loopback itself. It can have no IPv6 addresses while IPv6 is
// switched off.
func (f *Fabric) compareLoopback(h *host, got kernel.Link, d *differences) {
	if !got.Up {
		up := request(passPort, func(b *kernel.Batch) { b.SetUp("lo", loopbackIndex, true) })
		d.add(h.at("lo"), []fix{up}, "set %s:lo up: kernel has it down", h.name)
	}
	if hasIPv6(h.loopbacks) && len(got.Inet6) > inet6Disabled && got.Inet6[inet6Disabled] != 0 {
		set := f.setting(passPort, h, kernel.Sysctl{Path: "net/ipv6/conf/lo/disable_ipv6", Value: "0"})
		d.add(h.at("lo"), []fix{set}, "set ipv6 disable_ipv6 of %s:lo: kernel has %d, want 0", h.name,
			got.Inet6[inet6Disabled])
	}
}

// compareSysctls reads the settings of a namespace.
func (f *Fabric) compareSysctls(h *host, d *differences) {
	if kernel.CheckSysctls(h.sysctls) == nil {
		return
	}
	late := map[string]bool{}
	for _, s := range h.late() {
		late[s.Path] = true
	}
	for _, s := range h.sysctls { // find out which; that takes longer
		if err := kernel.CheckSysctls([]kernel.Sysctl{s}); err != nil {
			at := passSettings
			if late[s.Path] {
				at = passRoute
			}
			d.add(h.name, []fix{f.setting(at, h, s)}, "set %s: %w", h.name, err)
		}
	}
}
