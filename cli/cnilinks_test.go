package cli_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// What is done to the link of somebody else's container reaches the container: its
// carrier and its shaper follow, and its arrivals are watched.
func TestCNILinks(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed, hosttest.Ping)
	const name, link = "cli-cni-links", "h1--leaf1"
	must(t, "up", writeFile(t, fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: "+
		"2}, links: {default: {rate: 100mbit}}}\nnodes: {h1: {runtime: cni}}\n", name)))
	t.Cleanup(func() { must(t, "down", name) })
	r, a := newRuntime(t, name), newContainer(t, "a")
	check := func() {
		t.Helper()
		if err := r.CheckNetworkList(t.Context(), r.list, r.of(a)); err != nil {
			t.Error(err)
		}
	}
	nic := func(wants ...string) {
		t.Helper()
		got := a.must(t, "ip", "link", "show", "eth0") + a.must(t, "tc", "qdisc", "show", "dev", "eth0")
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("the container has\n%s\nwant %s", got, want)
			}
		}
		check()
	}
	r.add(t, a)
	a.must(t, "ping", "-c5", "-i0.05", "-W5", "10.0.0.1")
	nic("state UP", "rate 100Mbit")
	must(t, "link", "down", link, "-t", name)
	nic("NO-CARRIER")
	must(t, "link", "set", link, "--rate", "50mbit", "-t", name)
	nic("NO-CARRIER", "rate 50Mbit")
	if _, err := a.run(t, "ping", "-c1", "-W0.3", "10.0.0.1"); err == nil {
		t.Error("a ping crosses a link that is down")
	}
	r.del(t, a)
	r.add(t, a) // as the link is by now
	nic("NO-CARRIER", "rate 50Mbit")
	must(t, "link", "up", link, "-t", name)
	nic("state UP", "rate 50Mbit")
	a.must(t, "ping", "-c5", "-i0.05", "-W5", "10.0.0.1")
	must(t, "inspect", name, "--verify")

	hosttest.Eventually(t, "the arrivals of 10 pings in the container", func() error {
		for _, n := range stateOf(t, name).Soft.NICs {
			if n.Node == "h1" && n.Arrivals.Frames < 10 {
				return fmt.Errorf("%d were seen", n.Arrivals.Frames)
			}
		}
		return nil
	})
	r.del(t, a)

	// A runtime that calls the namespace by a name of its plugin's alone leaves a container
	// that the testbed cannot enter.
	file, err := a.ns.Dup()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := plugin("ADD", &container{id: a.id, path: "/proc/self/fd/3"}, pluginConfig(t, name, "1.0.0"))
	cmd.ExtraFiles = []*os.File{file}
	if output, err := cmd.Output(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got := do(t, "link", "set", link, "--rate", "20mbit", "-t",
		name); got.code != verdict.ExitUnsupported || !strings.Contains(got.stderr, "h1:eth0") ||
		!strings.Contains(got.stderr, "DEL the container") {
		t.Errorf("the rate of a container that cannot be entered: %+v", got)
	}
	must(t, "link", "set", link, "--delay", "1ms", "-t", name)
	must(t, "link", "down", link, "-t", name)
	nic("NO-CARRIER", "rate 50Mbit")
}
