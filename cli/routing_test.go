package cli_test

import (
	"os"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// TestRoutersWithDaemons runs FRRouting's commands in a switch. A daemon restores a route that was
// deleted. The test also brings up a testbed that is up already, and kills a daemon, which is
// reported.
func TestRoutersWithDaemons(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.FRR)
	const name = "cli-routing"
	file := writeFile(t, "name: "+name+"\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, "+
		"hosts-per-leaf: 1}, switch: {kind: router}, routing: {daemon: frr}, "+
		"links: {default: {rate: 100mbit}}}\n")
	before, _ := os.ReadDir("/var/tmp/frr") // which FRRouting fills with folders of its process ids
	must(t, "up", file)
	t.Cleanup(func() { must(t, "down", name) })
	in := func(node string, args ...string) string {
		return must(t, append([]string{"exec", node, "--testbed", name, "--"}, args...)...).stdout
	}
	if got := in("leaf1", "vtysh", "-c", "show bgp neighbors"); !strings.Contains(got,
		"remote AS 4200000002") || !strings.Contains(got, "BGP state = Established") {
		t.Errorf("leaf1 says of its neighbours:\n%s", got)
	}
	if got := must(t, "__complete", "exec", "--testbed", name, "").stdout; !strings.HasPrefix(got,
		"h0\nh1\nleaf1\nleaf2\nspine1\n") {
		t.Errorf("exec completes %q, want nodes and routers", got)
	}
	if got := in("h0", "railbed", "rsh", "leaf1", "vtysh -c 'show version'"); !strings.Contains(got,
		"FRRouting") {
		t.Errorf("vtysh in leaf1 says %q to h0", got)
	}
	route := in("leaf1", "ip", "route", "show", "proto", "bgp")
	first := strings.Fields(route)[0]
	in("leaf1", "ip", "route", "del", first)
	hosttest.Until(t, "the route to "+first+" again", func() bool {
		return strings.Contains(in("leaf1", "ip", "route", "show", "proto", "bgp"), first+" ")
	})
	if again := must(t, "up", file); !strings.Contains(again.stdout+again.stderr, "up already") {
		t.Errorf("up again says %s%s", again.stdout, again.stderr)
	}
	in("spine1", "sh", "-c", "kill -9 $(cat /run/frr/bgpd.pid)")
	hosttest.Until(t, "the event of a daemon that has ended", func() bool {
		return strings.Contains(must(t, "events", "--testbed", name).stdout, "bgpd of spine1 has ended")
	})
	must(t, "link", "down", "leaf1--spine1", "--testbed", name)
	shown := must(t, "inspect", name).stdout
	for _, want := range []string{"bgpd of spine1 ended at ", ": signal 9 (killed)", "ROUTERS REACT TO",
		"leaf1--spine1 down "} {
		if !strings.Contains(shown, want) {
			t.Errorf("inspect says nothing of %q:\n%s", want, shown)
		}
	}
	if after, _ := os.ReadDir("/var/tmp/frr"); len(after) != len(before) {
		t.Errorf("/var/tmp/frr had %d entries and has %d", len(before), len(after))
	}
}
