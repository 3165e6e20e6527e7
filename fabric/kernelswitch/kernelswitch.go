// Package kernelswitch turns a network namespace into a switch implemented by the Linux kernel: a
// bridge, or a router with equal-cost multipath.
package kernelswitch

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"railbed/internal/kernel"
)

// BridgeName is the bridge's interface in its namespace.
const BridgeName = "br0"

// maxBridgePorts is the largest number of ports of a Linux bridge: port numbers have 10 bits
// (BR_PORT_BITS) and 0 is reserved.
const maxBridgePorts = 1<<10 - 1

// CheckBridgePorts refuses more ports than a bridge supports.
func CheckBridgePorts(name string, ports int) error {
	if ports > maxBridgePorts {
		return fmt.Errorf("make bridge %s: %d ports, the kernel's bridge takes at most %d; use a router or "+
			"several bridges", name, ports, maxBridgePorts)
	}
	return nil
}

// NodeSysctls returns the settings of a node. They are written before the node has a NIC: a new NIC
// copies the settings of "default", so the work does not grow with the number of NICs.
func NodeSysctls() []kernel.Sysctl {
	return append(common(),
		// A node is not a router. A new namespace copies the host's value.
		kernel.Sysctl{Path: "net/ipv4/ip_forward", Value: "0"},
		// A NIC answers ARP only for its own addresses, and sends requests with its own address.
		// Without these settings any NIC answers for all of them, and traffic of one rail arrives
		// on another.
		kernel.Sysctl{Path: "net/ipv4/conf/all/arp_ignore", Value: "1"},
		kernel.Sysctl{Path: "net/ipv4/conf/all/arp_announce", Value: "2"},
		kernel.Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "0", Optional: true},
		// A namespace copies the host's setting, which would influence a run's results: BBR paces
		// by timers. Every kernel has Reno and allows it in every namespace. At a cluster's round
		// trips CUBIC grows as Reno does (RFC 9438, 4.3).
		kernel.Sysctl{Path: "net/ipv4/tcp_congestion_control", Value: "reno"},
	)
}

// RouterSysctls returns the settings of a router, without those for multipath.
func RouterSysctls() []kernel.Sysctl {
	return append(common(),
		kernel.Sysctl{Path: "net/ipv4/ip_forward", Value: "1"},
		// Every expired packet must get its answer; otherwise traceroute shows gaps, because by
		// default the kernel sends one error per target and second. The mask names the types that
		// are limited. IPv6 has a limit of its own. Both have a limit for all targets together,
		// which belongs to the namespace since Linux 6.13 and to the host before.
		kernel.Sysctl{Path: "net/ipv4/icmp_ratemask", Value: "0"},
		kernel.Sysctl{Path: "net/ipv4/icmp_msgs_per_sec", Value: "1000000", Optional: true},
		kernel.Sysctl{Path: "net/ipv4/icmp_msgs_burst", Value: "10000", Optional: true},
		// Only the plan's routes are used; redirects must not add others.
		kernel.Sysctl{Path: "net/ipv4/conf/all/send_redirects", Value: "0"},
		kernel.Sysctl{Path: "net/ipv4/conf/default/send_redirects", Value: "0"},
		kernel.Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "1", Optional: true},
		kernel.Sysctl{Path: "net/ipv6/icmp/ratelimit", Value: "0", Optional: true},
	)
}

// Values of fib_multipath_hash_policy. The layer 4 policy uses a hash that the sender's kernel may
// have left with the packet. That hash is random per socket and stays with the packet across a
// veth. So every router would choose by the same number, and by a different one in every run. The
// custom policy always computes its own hash.
const (
	hashLayer4 = "1"
	hashCustom = "3"
	// hashFields selects the addresses (1 and 2), the protocol (4) and the ports (16 and 32) of the
	// outer header.
	hashFields = "55"
)

// customHash reports whether the host supports the custom policy, which exists since Linux 5.14.
var customHash = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_fields")
	return err == nil
})

// MultipathSysctls returns the further settings of a node or router that has several paths to a
// destination. HashSeed seeds the choice among them, so that it is the same in every run; 0 lets
// the kernel draw a seed.
func MultipathSysctls(hashSeed uint32) []kernel.Sysctl {
	policy := hashLayer4
	var sysctls []kernel.Sysctl
	if customHash() {
		policy = hashCustom
		sysctls = append(sysctls,
			kernel.Sysctl{Path: "net/ipv4/fib_multipath_hash_fields", Value: hashFields},
			kernel.Sysctl{Path: "net/ipv6/fib_multipath_hash_fields", Value: hashFields, Optional: true})
	}
	sysctls = append(sysctls,
		// Flows of one pair of nodes spread over equal-cost paths by their ports. By addresses
		// alone they would all take the same path.
		kernel.Sysctl{Path: "net/ipv4/fib_multipath_hash_policy", Value: policy},
		// A path whose link has lost its carrier is not used.
		kernel.Sysctl{Path: "net/ipv4/conf/all/ignore_routes_with_linkdown", Value: "1"},
		kernel.Sysctl{Path: "net/ipv6/fib_multipath_hash_policy", Value: policy, Optional: true},
		kernel.Sysctl{Path: "net/ipv6/conf/all/ignore_routes_with_linkdown", Value: "1", Optional: true})
	if hashSeed != 0 { // since Linux 6.11, and for both families
		sysctls = append(sysctls, kernel.Sysctl{Path: "net/ipv4/fib_multipath_hash_seed",
			Value: strconv.FormatUint(uint64(hashSeed), 10), Optional: true})
	}
	return sysctls
}

// BridgeSysctls returns the settings of a bridge's namespace.
func BridgeSysctls() []kernel.Sysctl {
	return []kernel.Sysctl{
		// A bridge has no address and sends nothing itself.
		{Path: "net/ipv6/conf/all/disable_ipv6", Value: "1", Optional: true},
		{Path: "net/ipv6/conf/default/disable_ipv6", Value: "1", Optional: true},
		// Bridged frames bypass the firewall. Kernels before 5.3 have one setting for the whole
		// host, which does not show up in a namespace.
		{Path: "net/bridge/bridge-nf-call-iptables", Value: "0", Optional: true},
		{Path: "net/bridge/bridge-nf-call-ip6tables", Value: "0", Optional: true},
		{Path: "net/bridge/bridge-nf-call-arptables", Value: "0", Optional: true},
	}
}

// SilentSysctls returns the settings of a namespace whose interfaces only pass frames to a soft
// switch. Its kernel sends nothing by itself and answers nothing.
func SilentSysctls() []kernel.Sysctl {
	return []kernel.Sysctl{
		{Path: "net/ipv4/ip_forward", Value: "0"},
		{Path: "net/ipv4/conf/all/arp_ignore", Value: "8"},
		{Path: "net/ipv6/conf/all/disable_ipv6", Value: "1", Optional: true},
		{Path: "net/ipv6/conf/default/disable_ipv6", Value: "1", Optional: true},
	}
}

// common returns the settings of both nodes and routers.
func common() []kernel.Sysctl {
	return []kernel.Sysctl{
		// Answers may come in by another path than requests go out. The kernel uses the larger of
		// "all" and the NIC's own.
		{Path: "net/ipv4/conf/all/rp_filter", Value: "0"},
		{Path: "net/ipv4/conf/default/rp_filter", Value: "0"},
		// Duplicate address detection would hold back an address for a second or two; the plan has
		// no duplicates. The kernel requires both settings.
		{Path: "net/ipv6/conf/all/accept_dad", Value: "0", Optional: true},
		{Path: "net/ipv6/conf/default/accept_dad", Value: "0", Optional: true},
		// No link-local addresses besides the plan's (1 is IN6_ADDR_GEN_MODE_NONE), and therefore
		// no router solicitations.
		{Path: "net/ipv6/conf/default/addr_gen_mode", Value: "1", Optional: true},
	}
}
