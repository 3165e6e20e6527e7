package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"railbed/testkit/hosttest"
)

// railsFile has three servers with a NIC on each of two rails, two of which are somebody
// else's containers.
func railsFile(name string) string {
	return fmt.Sprintf("name: %s\nfabric: {topology: rail-optimized, params: {servers: 3, rails: 2}}\n"+
		"nodes: {\"h[1-2]\": {runtime: cni}}\n", name)
}

// holders are the containers' interfaces by the NICs that they have.
func holders(t *testing.T, name string) map[string]string {
	t.Helper()
	have := map[string]string{}
	for _, p := range stateOf(t, name).CNI {
		if p.Attached != nil {
			have[p.Node+":"+p.NIC] = p.Attached.Container + ":" + p.Attached.Interface
		}
	}
	return have
}

// A node with several NICs is one container's, which gets each by an ADD of its own, and
// has the node's routes over those that it has.
func TestCNIRails(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name = "cli-cni-rails"
	must(t, "up", writeFile(t, railsFile(name)))
	t.Cleanup(func() { must(t, "down", name); noTrace(t, name) })
	any, rail1 := newRuntime(t, name), newRuntime(t, name, "--group", "h*:eth1")
	a, b := newContainer(t, "a"), newContainer(t, "b")
	add := func(r *runtime, c *container, dev string) error {
		conf := r.of(c)
		conf.IfName = dev
		_, err := r.AddNetworkList(t.Context(), r.list, conf)
		return err
	}
	operate := func(what string, r *runtime, c *container, dev string) {
		t.Helper()
		conf := r.of(c)
		conf.IfName = dev
		do := r.CheckNetworkList
		if what == "DEL" {
			do = r.DelNetworkList
		}
		if err := do(t.Context(), r.list, conf); err != nil {
			t.Errorf("%s %s of %s: %v", what, dev, c.id, err)
		}
	}
	have := func(want ...string) {
		t.Helper()
		var got []string
		for nic, who := range holders(t, name) {
			got = append(got, nic+"="+who)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("attached are %v, want %v", got, want)
		}
	}
	route := func(c *container, family, to string) string {
		return c.must(t, "ip", family, "route", "show", to)
	}

	// a has the second NIC first, and b a NIC of another node.
	for _, err := range []error{add(rail1, a, "net1"), add(any, b, "eth1"), add(any, a, "eth0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	have("h1:eth0=a:eth0", "h1:eth1=a:net1", "h2:eth1=b:eth1")
	wants(t, add(rail1, a, "net2"), types.ErrTryAgainLater, "all 2 are taken")
	wants(t, add(any, newContainer(t, "c"), "eth0"), types.ErrTryAgainLater, "all 4 are taken")
	operate("CHECK", any, a, "eth0")
	operate("CHECK", rail1, a, "net1")
	for family, to := range map[string]string{"-4": "10.0.0.0/16", "-6": "fd00:a1::/64"} {
		if got := route(a, family, to); !strings.Contains(got, "dev eth0") ||
			!strings.Contains(got, "dev net1") {
			t.Errorf("the route to %s is\n%s\nwant one over both NICs", to, got)
		}
	}
	for _, to := range []string{"10.0.0.1", "10.128.0.1", "10.128.0.9"} { // h0, and its NICs
		a.must(t, "ping", "-c1", "-W5", to)
	}
	must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "-W5", "h1")

	must(t, "link", "down", "h1--leaf1", "-t", name) // a:eth0's
	operate("CHECK", any, a, "eth0")
	a.must(t, "ping", "-c2", "-i0.2", "-W5", "10.0.0.1")
	must(t, "link", "up", "h1--leaf1", "-t", name)

	// Without one of its NICs the node goes on with the other.
	operate("DEL", any, a, "eth0")
	if got := route(a, "-4", "10.0.0.0/16"); strings.Contains(got, "eth0") ||
		!strings.Contains(got, "dev net1") {
		t.Errorf("the route is %q, want one over net1", got)
	}
	operate("CHECK", rail1, a, "net1")
	a.must(t, "ping", "-c1", "-W5", "10.0.0.1")
	operate("DEL", any, a, "eth0")
	operate("CHECK", rail1, a, "net1")
	if err := add(any, a, "eth0"); err != nil {
		t.Fatal(err)
	}
	operate("CHECK", rail1, a, "net1")
	operate("DEL", rail1, a, "net1")
	operate("CHECK", any, a, "eth0")
	operate("DEL", any, a, "eth0")
	have("h2:eth1=b:eth1")
	if in := a.must(t, "ip", "-o", "address") + a.must(t, "ip", "rule"); strings.Contains(in, "10.") {
		t.Errorf("DEL leaves\n%s", in)
	}
	named := newRuntime(t, name, "--port", "h2:eth0")
	wants(t, add(named, a, "eth0"), types.ErrTryAgainLater, "all 1 are taken") // h2 is b's
	if err := add(named, b, "x"); err != nil {
		t.Fatal(err)
	}
	have("h2:eth0=b:x", "h2:eth1=b:eth1")
}
