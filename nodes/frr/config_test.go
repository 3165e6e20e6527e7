package frr

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// TestConfig compares the configurations of a leaf with those that FRRouting 8.4 was seen to accept
// and to converge with.
func TestConfig(t *testing.T) {
	p := plantest.Compile(t, `name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 1}
  switch: {kind: router}
  routing: {daemon: frr, hold: 6s, bfd: 100ms}
`)
	const zebra = `frr defaults datacenter
hostname leaf1
route-map own-ipv4 permit 10
 set src 10.0.0.9
ip protocol bgp route-map own-ipv4
route-map own-ipv6 permit 10
 set src fd00:a1::9
ipv6 protocol bgp route-map own-ipv6
`
	const bgpd = `frr defaults datacenter
hostname leaf1
router bgp 4200000000
 bgp router-id 10.0.0.9
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 bgp network import-check
 timers bgp 1 6
 neighbor 10.128.0.4 remote-as 4200000002
 neighbor 10.128.0.4 description spine1
 neighbor 10.128.0.4 timers connect 1
 neighbor 10.128.0.4 advertisement-interval 0
 neighbor 10.128.0.4 bfd 3 100 100
 neighbor 10.128.0.6 remote-as 4200000003
 neighbor 10.128.0.6 description spine2
 neighbor 10.128.0.6 timers connect 1
 neighbor 10.128.0.6 advertisement-interval 0
 neighbor 10.128.0.6 bfd 3 100 100
 address-family ipv4 unicast
  network 10.0.0.9/32
  network 10.128.0.0/31
  network 10.0.0.1/32
  neighbor 10.128.0.4 activate
  neighbor 10.128.0.6 activate
  maximum-paths 128
 exit-address-family
 address-family ipv6 unicast
  network fd00:a1::9/128
  network fd00:a2::/127
  network fd00:a1::1/128
  neighbor 10.128.0.4 activate
  neighbor 10.128.0.6 activate
  maximum-paths 128
 exit-address-family
`
	leaf := p.Switch("leaf1")
	if diff := cmp.Diff(zebra, zebraConfig(leaf)); diff != "" {
		t.Errorf("zebra (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bgpd, bgpdConfig(leaf)); diff != "" {
		t.Errorf("bgpd (-want +got):\n%s", diff)
	}
}
