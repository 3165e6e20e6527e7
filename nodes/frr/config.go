// Package frr runs the distribution's FRRouting as the control plane of a router. bgpd computes the
// routes, zebra sets them in the kernel, and bfdd runs where a plan requires it.
package frr

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"railbed/plan"
)

// multipath is the most paths of equal length of a route. FRRouting is built for 256 at most.
const multipath = 128

// connectRetry is how long a daemon waits before it connects to a neighbour again. The default of
// two minutes is for the internet.
const connectRetry = time.Second

// zebraConfig sets the router's own address as the source of BGP's routes, as in the plan's routes.
// An ICMP error then has it as its source.
func zebraConfig(sw *plan.Switch) string {
	var text strings.Builder
	fmt.Fprintf(&text, "frr defaults datacenter\nhostname %s\n", sw.Name)
	for _, loopback := range sw.Loopbacks {
		family, protocol := families(loopback.Addr())
		fmt.Fprintf(&text, "route-map own-%s permit 10\n set src %s\n", family, loopback.Addr())
		fmt.Fprintf(&text, "%s protocol bgp route-map own-%s\n", protocol, family)
	}
	return text.String()
}

// families returns FRRouting's names of an address's family and of its protocol.
func families(addr netip.Addr) (family, protocol string) {
	if addr.Is4() {
		return "ipv4", "ip"
	}
	return "ipv6", "ipv6"
}

// bgpdConfig configures eBGP with each neighbour, for both families.
func bgpdConfig(sw *plan.Switch) string {
	r := sw.Routing
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("frr defaults datacenter\nhostname %s", sw.Name)
	line("router bgp %d", r.ASN)
	line(" bgp router-id %s", sw.Loopbacks[0].Addr())
	line(" no bgp default ipv4-unicast")
	line(" no bgp ebgp-requires-policy")
	line(" bgp bestpath as-path multipath-relax")
	line(" bgp network import-check")
	line(" timers bgp %d %d", seconds(r.Keepalive), seconds(r.Hold))
	for _, peer := range r.Peers {
		line(" neighbor %s remote-as %d", peer.Addr, peer.ASN)
		line(" neighbor %s description %s", peer.Addr, peer.Switch)
		line(" neighbor %s timers connect %d", peer.Addr, seconds(connectRetry))
		line(" neighbor %s advertisement-interval 0", peer.Addr)
		if r.BFD > 0 {
			line(" neighbor %s bfd 3 %d %d", peer.Addr, r.BFD.Milliseconds(), r.BFD.Milliseconds())
		}
	}
	for _, is4 := range []bool{true, false} {
		family := map[bool]string{true: "ipv4", false: "ipv6"}[is4]
		line(" address-family %s unicast", family)
		for _, network := range r.Networks {
			if network.Addr().Is4() == is4 {
				line("  network %s", network)
			}
		}
		for _, peer := range r.Peers {
			line("  neighbor %s activate", peer.Addr)
		}
		line("  maximum-paths %d", multipath)
		line(" exit-address-family")
	}
	return text.String()
}

func seconds(d time.Duration) int { return int(d / time.Second) }
