package plan

import (
	"fmt"
	"strings"
	"testing"
)

// TestSysctlsAgainstThePlan: a sysctl that the plan contradicts is refused at its value; others are left to
// the kernel.
func TestSysctlsAgainstThePlan(t *testing.T) {
	const noIPv6 = "the plan gives every interface of the node IPv6 addresses, which this sysctl forbids"
	for _, c := range []struct{ sysctls, want string }{
		{"net.ipv4.ip_forward: 1", ""},
		{"net.ipv6.conf.all.forwarding: 1", ""},
		{"net.ipv4.conf.eth0.rp_filter: 1", ""},
		{"net.ipv4.conf.lo.rp_filter: 1", ""},
		{"net.ipv6.conf.all.disable_ipv6: 0", ""},
		{"net.ipv6.conf.all.disable_ipv6: 1", "f:4:50: net.ipv6.conf.all.disable_ipv6 of h0: " + noIPv6},
		{"net.ipv6.conf.eth0.disable_ipv6: 1", "f:4:51: net.ipv6.conf.eth0.disable_ipv6 of h0: " + noIPv6},
		{"net.ipv6.conf.lo.disable_ipv6: 01", "f:4:49: net.ipv6.conf.lo.disable_ipv6 of h0: " + noIPv6},
		{"net.ipv4.conf.eth7.rp_filter: 1", "f:4:48: net.ipv4.conf.eth7.rp_filter of h0: the node has no " +
			"interface eth7; want eth0, all, default, lo"},
		{"net.ipv4.neigh.eth7.gc_stale_time: 1", "f:4:53: net.ipv4.neigh.eth7.gc_stale_time of h0"},
		{"net.ipv6.conf.default.addr_gen_mode: 0", "f:4:55: net.ipv6.conf.default.addr_gen_mode of h0: " +
			"with this"},
		{"net.ipv4.conf.all.arp_ignore: 0", ""}, // with one NIC
		{"net.ipv4.ip_forward: 0, net.ipv4.conf.all.forwarding: 1",
			"f:4:72: net.ipv4.conf.all.forwarding of h0 " +
				"is 1, and net.ipv4.ip_forward, the same setting, is 0; want one of them"},
		{"net.ipv4.ip_forward: 01, net.ipv4.conf.all.forwarding: 1", ""},
		{"net.core.somaxconn: 9", ""},
	} {
		_, err := compileText(fmt.Sprintf("name: t\nfabric: {topology: single-switch, params: {hosts: "+
			"2}}\nnodes:\n"+
			"  h0: {sysctls: {%s}}\n", c.sysctls))
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.HasPrefix(got, c.want) &&
			c.want != "" ||
			strings.Contains(got, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", c.sysctls, got, c.want)
		}
	}
	_, err := compileText("name: t\nfabric: {topology: rail-optimized, params: {servers: 2, rails: 2, " +
		"spines: 1}}\n" +
		"nodes: {default: {sysctls: {net.ipv4.conf.all.arp_ignore: 0, net.ipv4.conf.all.arp_announce: 2}}}\n")
	if err == nil || !strings.Contains(err.Error(), "f:3:59: net.ipv4.conf.all.arp_ignore of h0: with "+
		"this sysctl "+
		"each of the node's 2 NICs answers for the addresses of the others") ||
		strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
