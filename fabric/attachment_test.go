package fabric_test

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/fabric"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// A testbed may only create in a container's namespace what plans can request, and may only carry
// its own traffic.
func TestAttachmentsAreBounded(t *testing.T) {
	for _, text := range []string{
		"name: a\nfabric: {topology: single-switch, params: {hosts: 3}}\nnodes: {h0: {runtime: cni}}\n",
		"name: a\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}}\n" +
			"nodes: {h0: {runtime: cni}}\n",
		"name: a\nfabric: {topology: rail-optimized, params: {servers: 3, rails: 2, spines: 1}}\nnodes: " +
			"{\"h*\": {runtime: cni}}\n",
	} {
		p := plantest.Compile(t, text)
		for _, defaultRoute := range []bool{false, true} {
			for nic := range p.Nodes[0].NICs {
				if err := fabric.NewAttachment(p, &p.Nodes[0], nic,
					defaultRoute).Check(defaultRoute); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
		}
	}
	p := plantest.Compile(t, "name: a\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, "+
		"hosts-per-leaf: 2}}\nnodes: {h0: {runtime: cni}}\n")
	hop := []plan.NextHop{{Dev: "eth0"}}
	route := func(dst string) func(*fabric.Attachment) {
		return func(a *fabric.Attachment) {
			a.Node.Routes = append(a.Node.Routes, plan.Route{Dst: netip.MustParsePrefix(dst), NextHops: hop})
		}
	}
	for want, change := range map[string]func(*fabric.Attachment){
		"route to 0.0.0.0/0":      func(a *fabric.Attachment) { a.Reach = nil },
		"route to 0.0.0.0/1":      route("0.0.0.0/1"),
		"route to 2000::/3":       route("2000::/3"),
		"route to 127.0.0.0/8":    route("127.0.0.0/8"),
		"route to 169.254.0.0/16": route("169.254.0.0/16"),
		"route to 0.0.0.0/2": func(a *fabric.Attachment) {
			a.Reach = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/2")}
		},
		"rule from 0.0.0.0/0": func(a *fabric.Attachment) {
			a.Node.Rules = append(a.Node.Rules, plan.Rule{From: netip.MustParsePrefix("0.0.0.0/0"), Table: 1})
		},
		"address 127.0.0.1/8": func(a *fabric.Attachment) {
			a.Node.Loopbacks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}
		},
		"address 10.0.0.1/2": func(a *fabric.Attachment) {
			a.Node.Loopbacks = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/2")}
		},
		"address 2000::1/3": func(a *fabric.Attachment) {
			a.Node.Loopbacks = []netip.Prefix{netip.MustParsePrefix("2000::1/3")}
		},
		"address 10.0.0.4/32 twice": func(a *fabric.Attachment) {
			a.Node.Loopbacks = []netip.Prefix{netip.MustParsePrefix("10.0.0.4/32"),
				netip.MustParsePrefix("10.0.0.4/32")}
		},
		"/24 twice": func(a *fabric.Attachment) {
			a.Node.Loopbacks = []netip.Prefix{netip.PrefixFrom(a.Addresses()[0], 24)}
		},
		"NIC 1 of 1":  func(a *fabric.Attachment) { a.NIC = 1 },
		"NIC -1 of 1": func(a *fabric.Attachment) { a.NIC = -1 },
		"with 0 next hops": func(a *fabric.Attachment) {
			a.Node.Routes = append(a.Node.Routes, plan.Route{})
		},
		"routes, rules and neighbours; want at most ": func(a *fabric.Attachment) {
			a.Node.Routes = make([]plan.Route, 1<<20)
		},
	} {
		a := fabric.NewAttachment(p, p.Node("h0"), 0, false)
		a.Node.Rules, a.Node.Routes = a.Node.Rules[:len(a.Node.Rules):len(a.Node.Rules)],
			a.Node.Routes[:len(a.Node.Routes):len(a.Node.Routes)]
		change(a)
		if err := a.Check(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if err := (*fabric.Attachment)(nil).Check(false); err == nil {
		t.Error("no attachment is right")
	}
}
