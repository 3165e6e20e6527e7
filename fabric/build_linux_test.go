package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/fabric/link"
	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

func ping(t testing.TB, ns *kernel.Namespace, args ...string) (string, bool) {
	t.Helper()
	out, err := in(t, ns, append([]string{"ping", "-n", "-W1"}, args...)...)
	return out, err == nil
}

// addrs returns the addresses that other nodes use for a node, IPv4 first.
func addrs(p *plan.Plan, name string) []netip.Addr {
	var found []netip.Addr
	for _, h := range p.Hosts {
		if h.Name == name {
			found = append(found, h.Addr)
		}
	}
	return found
}

func TestEveryNodeReachesEveryOther(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	for name, fabric := range map[string]string{
		"leaf-spine": "topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, switch: " +
			"{kind: router}",
		"bridge":     "topology: single-switch, params: {hosts: 3}, switch: {kind: bridge}",
		"one router": "topology: single-switch, params: {hosts: 3}, switch: {kind: router}",
		"fat-tree":   "topology: fat-tree, params: {k: 2}, switch: {kind: router}",
		"rails": "topology: rail-optimized, params: {servers: 2, rails: 2, spines: 2}, switch: " +
			"{kind: router}",
		"dual plane": "topology: hpn, params: {segments: 2, servers: 1, rails: 1, aggs: 2}, switch: " +
			"{kind: router}",
		"small torus": "topology: torus, params: {x: 3, y: 1, z: 1, hosts-per-switch: 1}, switch: {kind: " +
			"router}",
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.Compile(t, "name: t\nfabric: {"+fabric+", links: {default: {rate: 100mbit}}}\n")
			f, ns := build(t, p)
			for _, from := range p.Nodes {
				for _, to := range p.Nodes {
					for _, addr := range addrs(p, to.Name) {
						if out, ok := ping(t, ns[from.Name], "-c1", addr.String()); !ok {
							t.Errorf("%s does not reach %s at %s:\n%s", from.Name, to.Name, addr, out)
						}
					}
				}
			}
			if err := f.Verify(context.Background()); err != nil {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestHopsAreThePlans(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	p := leafSpine(t, 2, 2, 1)
	_, ns := build(t, p)
	for _, addr := range addrs(p, "h1") {
		// leaf, spine, leaf and the node itself: three routers answer that the
		// time is exceeded.
		for ttl := 1; ttl <= 4; ttl++ {
			out, reached := ping(t, ns["h0"], "-c1", fmt.Sprintf("-t%d", ttl), addr.String())
			if exceeded := strings.Contains(out, "exceeded"); reached != (ttl == 4) || exceeded == reached {
				t.Errorf("%s at TTL %d: reached %t\n%s", addr, ttl, reached, out)
			}
		}
		// No limit on these answers: the kernel's defaults are one per second and
		// target after a first six, and 50 at once to all targets. A kernel that is
		// interrupted while it sends an answer drops the next (icmp_xmit_lock).
		const probes = 200
		out, _ := ping(t, ns["h0"], fmt.Sprintf("-c%d", probes), "-i0.0002", "-t2", addr.String())
		if got := strings.Count(out, "exceeded"); got < probes*9/10 {
			t.Errorf("%s: %d of %d probes answered, want nearly all\n%s", addr, got, probes, out)
		}
	}
}

// flows sends one UDP packet to addr from each of many source ports.
func flows(t *testing.T, ns *kernel.Namespace, addr netip.Addr, count, length int) {
	t.Helper()
	err := ns.Do(func() error {
		for i := range count {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: 20_000 + i})
			if err == nil {
				err = unix.Sendto(fd, make([]byte, length), 0, &unix.SockaddrInet4{Port: 9, Addr: addr.As4()})
			}
			if err := errors.Join(err, unix.Close(fd)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sent is how many packets each spine got from the first leaf.
func sent(t *testing.T, f *Fabric) []uint64 {
	t.Helper()
	links, err := f.Links(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var counts []uint64
	for _, l := range links {
		if l.Class == "fabric" && strings.HasPrefix(l.A.Node, "leaf1") {
			counts = append(counts, l.B.Counters.RxPackets)
		}
	}
	return counts
}

// sentSince is sent when the spines together have got a number of packets more than before. Packets are still
// under way when their sender has sent them.
func sentSince(t *testing.T, f *Fabric, before []uint64, packets uint64) (counts []uint64) {
	t.Helper()
	hosttest.Eventually(t, fmt.Sprintf("%d packets at the spines", packets), func() error {
		counts = sent(t, f)
		var more uint64
		for i := range counts {
			more += counts[i] - before[i]
		}
		if more < packets {
			return fmt.Errorf("%d have come", more)
		}
		return nil
	})
	return counts
}

func TestFlowsSpreadOverSpines(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	const count = 400
	p := leafSpine(t, 2, 2, 1)
	f, ns := build(t, p)
	before := sent(t, f)
	flows(t, ns["h0"], addrs(p, "h1")[0], count, 1)
	after := sentSince(t, f, before, count)
	if len(after) != 2 {
		t.Fatalf("%d links from leaf1 to spines", len(after))
	}
	spread := []uint64{after[0] - before[0], after[1] - before[1]}
	// A fair coin gives less than 35 % of 400 once in 10^9.
	if spread[0]+spread[1] < count || spread[0] < count*35/100 || spread[1] < count*35/100 {
		t.Errorf("spines got %v of %d flows", spread, count)
	}
}

// paths are the ports by which a leaf forwards flows that differ in their source port, as the
// kernel reports to ip.
func paths(t *testing.T, p *plan.Plan) (devs []string) {
	t.Helper()
	f, ns := build(t, p)
	defer f.Close()
	for port := range 40 {
		out, err := in(t, ns["leaf1"], "ip", "route", "get", addrs(p, "h1")[0].String(), "from",
			addrs(p, "h0")[0].String(),
			"iif", "p0", "ipproto", "udp", "sport", fmt.Sprint(20_000+port), "dport", "9")
		if err != nil {
			t.Fatal(out)
		}
		words := strings.Fields(out)
		devs = append(devs, words[slices.Index(words, "dev")+1])
	}
	return devs
}

func TestFlowsTakeTheSamePathsInEveryRun(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 2, 2, 1)
	first, second := paths(t, p), paths(t, p)
	if !slices.Equal(first, second) {
		t.Errorf("other paths in the second run:\n%v\n%v", first, second)
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); err != nil {
		t.Skip("this kernel takes no hash seed (before Linux 6.11)")
	}
	for i := range p.Switches {
		p.Switches[i].HashSeed++
	}
	if slices.Equal(first, paths(t, p)) { // by chance once in 10^12
		t.Errorf("another seed, the same paths: %v", first)
	}
}

func TestPacketsOfTheMTUPassAndLongerOnesDoNot(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	p := plantest.Compile(t, "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, "+
		"hosts-per-leaf: 1}, switch: {kind: router}, links: {default: {rate: 100mbit, mtu: 4200}}}\n")
	_, ns := build(t, p)
	for i, header := range []int{20 + 8, 40 + 8} {
		addr := addrs(p, "h1")[i].String()
		if out, ok := ping(t, ns["h0"], "-c1", "-Mdo", fmt.Sprintf("-s%d", 4200-header), addr); !ok {
			t.Errorf("a packet of 4200 bytes to %s is lost:\n%s", addr, out)
		}
		if out, ok := ping(t, ns["h0"], "-c1", "-Mdo", fmt.Sprintf("-s%d", 4201-header), addr); ok {
			t.Errorf("a packet of 4201 bytes to %s passes:\n%s", addr, out)
		}
	}
}

// leftovers returns the objects in a namespace that a new namespace does not have.
func leftovers(t *testing.T, ns *kernel.Namespace) string {
	t.Helper()
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	links, err1 := conn.Links(false)
	addresses, err2 := conn.Addresses()
	routes, err3 := conn.Routes()
	rules, err4 := conn.Rules()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	links = slices.DeleteFunc(links, func(l kernel.Link) bool { return l.Name == "lo" })
	addresses = slices.DeleteFunc(addresses, func(a kernel.Address) bool {
		return a.Prefix.Addr().IsLoopback()
	})
	routes = slices.DeleteFunc(routes, func(r kernel.Route) bool { return r.Dst.Addr().IsLoopback() })
	if len(links)+len(addresses)+len(routes)+len(rules) == 0 {
		return ""
	}
	return fmt.Sprint(links, addresses, routes, rules)
}

func TestCloseLeavesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	for _, fabric := range []string{
		"topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, switch: {kind: router}",
		"topology: single-switch, params: {hosts: 3}, switch: {kind: bridge}",
	} {
		p := plantest.Compile(t, "name: t\nfabric: {"+fabric+", links: {default: {rate: 100mbit}}}\n")
		f, ns := build(t, p)
		for range 2 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for name, n := range ns {
			if left := leftovers(t, n); left != "" {
				t.Errorf("%s: %s", name, left)
			}
		}
		if _, err := f.Links(context.Background()); err == nil {
			t.Error("a closed fabric tells its links")
		}
		if err := f.Verify(context.Background()); err == nil {
			t.Error("a closed fabric is as planned")
		}
		// The namespaces are as good as new.
		again, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseLeavesWhatOthersMade(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 1, 1, 1)
	ns := namespaces(t, p)
	if out, err := in(t, ns["h0"], "ip", "link", "add", "other0", "type", "veth", "peer", "name",
		"other1"); err != nil {
		t.Fatal(out)
	}
	f, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := in(t, ns["h0"], "ip", "link", "show", "other1"); err != nil {
		t.Error(out)
	}
}

// TestInterruptedBuildLeavesNothing ends the context at every step of a build.
func TestInterruptedBuildLeavesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 2, 2, 2)
	ns := namespaces(t, p)
	total := 0
	for stop := 0; stop <= total; stop++ {
		ctx, cancel := context.WithCancel(context.Background())
		if stop == 0 {
			cancel()
		}
		f, err := Build(ctx, p, ns, Options{Calibration: testCalibration(t), Parallel: 1,
			Progress: func(done, all int) {
				if total = all - 1; done >= stop {
					cancel()
				}
			}})
		cancel()
		if err == nil {
			f.Close()
			t.Fatalf("interrupted at step %d of %d, and built", stop, total)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at step %d: %v", stop, err)
		}
		if stop == 0 {
			total = 1 // the first step was not reported
		}
		for name, n := range ns {
			if left := leftovers(t, n); left != "" {
				t.Errorf("interrupted at step %d, %s: %s", stop, name, left)
			}
		}
	}
	if total < 20 {
		t.Errorf("only %d steps were told", total)
	}
}

func TestFailedBuildNamesTheRequestAndLeavesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 1, 1, 2)
	ns := namespaces(t, p)
	p.Nodes[1].Routes = append(p.Nodes[1].Routes, plan.Route{
		Dst:      netip.MustParsePrefix("192.0.2.0/24"),
		NextHops: []plan.NextHop{{Via: netip.MustParseAddr("198.51.100.1"), Dev: "eth0"}},
	})
	_, err := Build(context.Background(), p, ns, Options{Calibration: testCalibration(t)})
	if err == nil || !strings.Contains(err.Error(),
		`apply "ip -n h1 route replace 192.0.2.0/24 via 198.51.100.1 dev eth0": network is unreachable (Nexthop has invalid gateway`) {
		t.Errorf("got %v", err)
	}
	for name, n := range ns {
		if left := leftovers(t, n); left != "" {
			t.Errorf("%s: %s", name, left)
		}
	}
}

func TestWhatTheHostLacksIsFoundBeforeAnythingChanges(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	var traced []string
	options := Options{Calibration: testCalibration(t), Trace: func(line string) {
		traced = append(traced, line)
	}}
	refused := func(p *plan.Plan) error {
		t.Helper()
		f, err := Build(context.Background(), p, namespaces(t, p), options)
		if err == nil {
			t.Error("built")
			return errors.Join(errors.New("built"), f.Close())
		}
		if len(traced) > 0 {
			t.Errorf("changed before it was refused (%v):\n%s", err, strings.Join(traced, "\n"))
		}
		return err
	}
	p := leafSpine(t, 1, 1, 1)
	p.Links[0].AToB.Delay = 1_000_000
	if kernel.ProbeNetem() != nil {
		if err := refused(p); !errors.Is(err, verdict.ErrUnsupported) ||
			!strings.HasPrefix(err.Error(), "shape h0--leaf1 a-to-b: netem: unsupported here") {
			t.Errorf("got %v", err)
		}
	}
	p = leafSpine(t, 1, 1, 1)
	p.Links[1].BToA.Rate = 100e12
	var unreachable *link.UnreachableError
	if err := refused(p); !errors.As(err, &unreachable) ||
		!strings.HasPrefix(err.Error(),
			"shape leaf1--spine1 b-to-a: 100tbit not reachable on this host: best ") {
		t.Errorf("got %v", err)
	}
	p = plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: "+
		"bridge}}\n")
	for len(p.Switches[0].Ports) <= 1023 {
		p.Switches[0].Ports = append(p.Switches[0].Ports,
			plan.Interface{Name: fmt.Sprintf("p%d", len(p.Switches[0].Ports))})
	}
	if err := refused(p); !strings.Contains(err.Error(),
		"1024 ports, the kernel's bridge takes at most 1023") {
		t.Errorf("got %v", err)
	}
	p = leafSpine(t, 1, 1, 1)
	p.Links[0].A.Port = "eth7"
	if err := refused(p); !strings.Contains(err.Error(), "h0:eth0: no link ends here") ||
		!strings.Contains(err.Error(), "h0:eth7: a link ends here, and the plan has no such interface") {
		t.Errorf("got %v", err)
	}
	p = leafSpine(t, 1, 1, 1)
	p.Nodes[0].Sysctls = map[string]string{"kernel.hostname": "x"}
	if err := refused(p); !strings.Contains(err.Error(),
		"set sysctl kernel.hostname of h0: want a setting below net") {
		t.Errorf("got %v", err)
	}
	p = leafSpine(t, 1, 1, 1)
	p.Nodes[0].Sysctls = map[string]string{"net...kernel.hostname": "x"}
	if err := refused(p); !strings.Contains(err.Error(), "want a setting below net") {
		t.Errorf("got %v", err)
	}
}

// TestSysctlsOfTheFile: the file's settings replace ours, by any of their names, and stay in force.
func TestSysctlsOfTheFile(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	for _, c := range []struct{ sysctl, value, reads, want string }{
		{"net.ipv4.ip_forward", "1", "net.ipv4.conf.eth0.forwarding", "1"},
		{"net.ipv4.conf.all.forwarding", "1", "net.ipv4.ip_forward", "1"},
		{"net.ipv4.conf.default.forwarding", "1", "net.ipv4.conf.eth0.forwarding", "1"},
		{"net.ipv4.conf.eth0.forwarding", "1", "net.ipv4.ip_forward", "0"},
		{"net.ipv6.conf.all.forwarding", "1", "net.ipv6.conf.eth0.forwarding", "1"},
		{"net.ipv4.conf.eth0.rp_filter", "1", "net.ipv4.conf.eth0.rp_filter", "1"},
		{"net.ipv4.conf.default.rp_filter", "2", "net.ipv4.conf.eth0.rp_filter", "2"},
		{"net.ipv4.conf.all.rp_filter", "1", "net.ipv4.conf.eth0.rp_filter", "0"},
		{"net.ipv4.conf.all.arp_ignore", "0", "net.ipv4.conf.all.arp_ignore", "0"},
		{"net.ipv4.tcp_ecn", "01", "net.ipv4.tcp_ecn", "1"},
		{"net.ipv4.fib_multipath_hash_policy", "1", "net.ipv4.fib_multipath_hash_policy", "1"},
	} {
		p := leafSpine(t, 1, 1, 2)
		p.Nodes[0].Sysctls = map[string]string{c.sysctl: c.value}
		f, ns := build(t, p)
		if err := f.Verify(context.Background()); err != nil {
			t.Errorf("%s=%s: %v", c.sysctl, c.value, err)
		}
		for node, want := range map[string]string{"h0": c.want, "h1": ""} {
			out, err := in(t, ns[node], "sysctl", "-n", c.reads)
			if got := strings.TrimSpace(out); err != nil || want != "" && got != want ||
				want == "" && strings.HasSuffix(c.reads, "forwarding") && got != "0" {
				t.Errorf("%s=%s: %s of %s is %q, want %s (%v)", c.sysctl, c.value, c.reads, node, got,
					want, err)
			}
		}
		if out, ok := ping(t, ns["h1"], "-c1", addrs(p, "h0")[0].String()); !ok {
			t.Errorf("%s=%s: %s", c.sysctl, c.value, out)
		}
	}
}

func TestBridgeTakesItsMostPorts(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if testing.Short() {
		t.Skip("1,023 links take a second or two")
	}
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 1023}, switch: "+
		"{kind: bridge}, links: {default: {rate: 100mbit}}}\n")
	f, _ := build(t, p)
	if err := f.Verify(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestTraceIsWhatIpAndTcTake(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := leafSpine(t, 1, 1, 1)
	p.Nodes[0].Sysctls = map[string]string{"net.ipv4.tcp_rmem": "4096 65536 1000000",
		"net.ipv4.conf.eth0.tag": "5"}
	var traced []string
	f, err := Build(context.Background(), p, namespaces(t, p), Options{
		Calibration: testCalibration(t), Trace: func(line string) { traced = append(traced, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := strings.Join(traced, "\n")
	for _, want := range []string{
		"ip -n h0 link add eth0 index 101 address ", " type veth peer p0 netns leaf1 index 102 address ",
		"tc -n h0 qdisc replace dev eth0 root handle 1: tbf rate 100000000bit burst ",
		"ip netns exec h0 ethtool -K eth0 tx off tso off gso off gro off",
		`ip netns exec h0 sysctl -w net.ipv4.tcp_rmem="4096 65536 1000000"`,
		`ip netns exec h0 sysctl -w net.ipv4.conf.eth0.tag="5"`,
		"ip -n leaf1 link set p0 up", "ip -n h0 neighbour replace ", "ip -6 -n h0 rule add priority ",
		"ip -n h0 route replace ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestRootless(t *testing.T) {
	if hosttest.InUserNS(t) {
		TestEveryNodeReachesEveryOther(t)
		TestHopsAreThePlans(t)
		TestCloseLeavesNothing(t)
		TestVerifySeesEveryAlteration(t)
		TestRepairUndoesEveryAlteration(t)
		TestLinksAreChangedLive(t)
	}
}
