package testbed_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// TestTraceroute runs the program over soft switches. The hops of each flow are the switches of one
// of the plan's paths, in its order, and then the node. The same flow shows the same path again.
// Each spine has as many of the flows as it has data of these flows.
func TestTraceroute(t *testing.T) {
	hosttest.Need(t, hosttest.Traceroute)
	tb := upPlan(t, `
name: go-traceroute
seed: 7
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 1}, switch: {kind: soft}}
`)
	p := tb.Plan()
	spines := []string{"spine1", "spine2"}
	for i, family := range []int{4, 6} {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			to := p.Node("h1").Loopbacks[i].Addr()
			first, _, _ := strings.Cut(p.Node("h0").NICs[0].Peer, ":")
			paths := pathsTo(t, p, first, to)
			if len(paths) != len(spines) || len(paths[0]) != 3 {
				t.Fatalf("the plan's paths are %v", paths)
			}
			// A node's kernel answers six probes at once, and then one a second.
			for flow := range 3 {
				hops := traceroute(t, tb, family, flow, to)
				path := slices.IndexFunc(paths, func(path []string) bool {
					return slices.Equal(hops, slices.Concat(addressesOf(p, path, i), []netip.Addr{to}))
				})
				if path < 0 {
					t.Errorf("flow %d: the hops are %v, want one of the paths %v", flow, hops, paths)
				}
				if again := traceroute(t, tb, family, flow, to); !slices.Equal(again, hops) {
					t.Errorf("flow %d: the hops are %v, and then %v", flow, hops, again)
				}
			}
			// The second hop of as many flows as send data.
			var shown [2]int
			for flow := range sendFlows {
				hops := traceroute(t, tb, family, flow, to, "-f", "2", "-m", "2")
				for k, spine := range spines {
					if slices.Equal(hops, addressesOf(p, []string{spine}, i)) {
						shown[k]++
					}
				}
			}
			if sent := flowsOver(t, tb, family); shown != sent || shown[0]+shown[1] != sendFlows ||
				shown[0] == 0 || shown[1] == 0 {
				t.Errorf("traceroute shows %v flows over the spines, the data go %v", shown, sent)
			}
		})
	}
}

// traceroute runs the program with one probe of UDP a hop, of one flow of sendPart's,
// and returns who answered.
func traceroute(t *testing.T, tb *testbed.Testbed, family, flow int, to netip.Addr,
	more ...string) (hops []netip.Addr) {
	t.Helper()
	args := slices.Concat([]string{"-" + strconv.Itoa(family), "-n", "-q", "1", "-U", "-p", "9",
		"--sport=" + strconv.Itoa(sendFirstPort+flow)}, more, []string{to.String()})
	output, err := tb.Node("h0").Command(t.Context(), "traceroute", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("traceroute %q: %v\n%s", args, err, output)
	}
	for line := range strings.Lines(string(output)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "traceroute" { // its first line
			hop, err := netip.ParseAddr(fields[1])
			if err != nil {
				t.Fatalf("traceroute %q:\n%s", args, output)
			}
			hops = append(hops, hop)
		}
	}
	return hops
}

// pathsTo are the switches that the plan's routes lead over, from one on.
func pathsTo(t *testing.T, p *plan.Plan, from string, to netip.Addr) (paths [][]string) {
	t.Helper()
	sw := p.Switch(from)
	if sw == nil {
		return [][]string{{}} // the node
	}
	var best plan.Route
	for r := range sw.Routes.All() {
		if r.Dst.Contains(to) && (!best.Dst.IsValid() || r.Dst.Bits() > best.Dst.Bits()) {
			best = r
		}
	}
	for _, hop := range best.NextHops {
		at := slices.IndexFunc(sw.Ports, func(i plan.Interface) bool { return i.Name == hop.Dev })
		next, _, _ := strings.Cut(sw.Ports[at].Peer, ":")
		for _, rest := range pathsTo(t, p, next, to) {
			paths = append(paths, append([]string{from}, rest...))
		}
	}
	return paths
}

// addressesOf returns the addresses from which switches answer: their loopbacks.
func addressesOf(p *plan.Plan, switches []string, family int) (addrs []netip.Addr) {
	for _, name := range switches {
		addrs = append(addrs, p.Switch(name).Loopbacks[family].Addr())
	}
	return addrs
}
