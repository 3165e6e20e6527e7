package plan

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
	"railbed/plan/spec"
)

var update = flag.Bool("update", false, "write the golden plans")

// TestGolden compares the plan of each file in testdata, as JSON, with the JSON file beside it. The
// JSON decodes to the same plan.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d golden files, want at least 8 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			testbed, err := spec.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			p := mustCompile(t, testbed)
			var got bytes.Buffer
			encoder := json.NewEncoder(&got)
			encoder.SetIndent("", " ")
			if err := encoder.Encode(p); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".plan.json"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("plan differs from %s (-update writes it):\n%s", golden, diff)
			}
			var back Plan
			if err := json.Unmarshal(want, &back); err != nil {
				t.Fatal(err)
			}
			if back.Hash() != p.Hash() {
				t.Error("the plan read back from its JSON has another hash")
			}
			checkInvariants(t, p)
		})
	}
}

// checkTables checks that a table has one route for a destination. No route may replace the
// kernel's route to a connected subnet, because a gateway on that subnet needs it.
func checkTables(t testing.TB, name string, ifaces []Interface, routes []Route) {
	t.Helper()
	type slot struct {
		table int
		dst   netip.Prefix
	}
	taken := map[slot]string{}
	for _, iface := range ifaces {
		for _, a := range iface.Addrs {
			taken[slot{0, a.Masked()}] = "connected " + iface.Name
		}
	}
	for _, r := range routes {
		unique(t, taken, slot{r.Table, r.Dst}, name+": "+r.Dst.String())
	}
}

// checkInvariants checks invariants of every plan, whatever the file.
func checkInvariants(t testing.TB, p *Plan) {
	t.Helper()
	macs, addrs, names := map[MAC]string{}, map[netip.Addr]string{}, map[string]bool{}
	ports := map[End]*Interface{}
	device := func(name string, loopbacks []netip.Prefix, ifaces []Interface) {
		if names[name] {
			t.Fatalf("two devices are called %s", name)
		}
		names[name] = true
		for _, l := range loopbacks {
			unique(t, addrs, l.Addr(), name)
		}
		for i := range ifaces {
			iface := &ifaces[i]
			at := name + ":" + iface.Name
			unique(t, macs, iface.MAC, at)
			if iface.MAC[0]&3 != 2 {
				t.Fatalf("%s: %s is not a locally administered unicast address", at, iface.MAC)
			}
			for _, a := range iface.Addrs {
				unique(t, addrs, a.Addr(), at)
			}
			if len(iface.Name) > 15 || ports[End{name, iface.Name}] != nil {
				t.Fatalf("%s: interface name too long or taken", at)
			}
			ports[End{name, iface.Name}] = iface
		}
	}
	machines := map[string]string{}
	for _, n := range p.Nodes {
		device(n.Name, n.Loopbacks, n.NICs)
		checkTables(t, n.Name, n.NICs, n.Routes)
		unique(t, machines, n.MachineID, n.Name)
		if len(n.MachineID) != 32 || len(n.NICs) == 0 {
			t.Fatalf("node %s: machine id %q, %d NICs", n.Name, n.MachineID, len(n.NICs))
		}
	}
	for i, s := range p.Switches {
		device(s.Name, s.Loopbacks, s.Ports)
		checkTables(t, s.Name, s.Ports, s.Routes.List())
		if isSoft := s.Kind == spec.Soft; (s.Soft != nil) != isSoft || (s.ID == uint32(i+1)) != isSoft ||
			isSoft && p.PacketMemory == 0 {
			t.Fatalf("switch %s of kind %s: %+v", s.Name, s.Kind, s.Soft)
		} else if isSoft {
			checkSoft(t, &s)
		}
	}
	links := map[string]string{}
	for _, l := range p.Links {
		unique(t, links, l.Name, l.Name)
		a, b := ports[l.A], ports[l.B]
		if a == nil || b == nil || a.Link != l.Name || b.Link != l.Name || a.MTU != l.MTU || b.MTU != l.MTU ||
			a.Peer != l.B.Node+":"+l.B.Port || b.Peer != l.A.Node+":"+l.A.Port {
			t.Fatalf("link %s and its ends disagree: %+v %+v", l.Name, a, b)
		}
		delete(ports, l.A)
		delete(ports, l.B)
		for _, d := range []Direction{l.AToB, l.BToA} {
			if d.Rate == 0 || int(d.Queue) < l.MTU+14 {
				t.Fatalf("link %s: rate %s, queue %s", l.Name, d.Rate, d.Queue)
			}
		}
	}
	if len(ports) > 0 {
		t.Fatalf("%d interfaces have no link", len(ports))
	}
	for i, r := range p.Ranks {
		n := p.Node(r.Node)
		at := r.Node + ":" + r.NIC
		if r.SecondNIC != "" {
			at = r.Node
			if !slices.ContainsFunc(n.Rails, func(rail Rail) bool {
				return slices.Equal(rail.NICs, []string{r.NIC, r.SecondNIC}) && rail.Addr4 == r.Addr4 &&
					rail.Addr6 == r.Addr6
			}) {
				t.Fatalf("rank %d is %+v, and the rails are %+v", i, r, n.Rails)
			}
		}
		if r.Rank != i || n == nil || addrs[r.Addr4] != at || addrs[r.Addr6] != at {
			t.Fatalf("rank %d is %+v", i, r)
		}
	}
	named := map[string]bool{}
	for _, h := range p.Hosts {
		owner, nic, _ := strings.Cut(addrs[h.Addr], ":")
		if owner != h.Name && owner+"-"+nic != h.Name {
			t.Fatalf("%s of %s is %q's", h.Addr, h.Name, addrs[h.Addr])
		}
		if key := fmt.Sprint(strings.ToLower(h.Name), h.Addr.Is4()); named[key] {
			t.Fatalf("two lines of the hosts file name %s", h.Name)
		} else {
			named[key] = true
		}
	}
}

// checkSoft checks every soft switch. The parts of the buffer add up to the whole, each port has
// ordered thresholds for lossless priorities, and no share is 0.
func checkSoft(t testing.TB, s *Switch) {
	t.Helper()
	reserved := units.Bytes(0)
	for _, port := range s.Ports {
		if (port.PFC != nil) != (s.Soft.PFC != nil) || (port.GFC != nil) != (s.Soft.GFC != nil) {
			t.Fatalf("%s:%s: %+v %+v", s.Name, port.Name, port.PFC, port.GFC)
		}
		if p := port.PFC; p != nil {
			reserved += units.Bytes(len(s.Soft.PFC.Priorities)) * (p.XOff + p.Headroom)
			if p.XOn > p.XOff {
				t.Fatalf("%s:%s: %+v", s.Name, port.Name, p)
			}
		}
		if g := port.GFC; g != nil {
			reserved += units.Bytes(len(s.Soft.GFC.Priorities)) * g.Limit
			if !slices.IsSorted(g.Stages) || g.B1 >= g.BM || g.BM >= g.Limit || g.Least == 0 ||
				(len(g.Stages) == 0) != (g.Period > 0) {
				t.Fatalf("%s:%s: %+v", s.Name, port.Name, g)
			}
		}
	}
	if s.Soft.Reserved != reserved || s.Soft.Shared != s.Soft.Buffer-reserved ||
		s.Soft.Shared < s.Soft.Scheduler.Quantum || s.Soft.Alpha.IsZero() {
		t.Fatalf("%s: %+v, and the ports reserve %s", s.Name, s.Soft, reserved)
	}
	for q, weight := range s.Soft.Scheduler.Weights {
		if (weight == 0) != slices.Contains(s.Soft.Scheduler.Strict, q) {
			t.Fatalf("%s: %+v", s.Name, s.Soft.Scheduler)
		}
	}
}

func unique[K comparable](t testing.TB, seen map[K]string, key K, owner string) {
	t.Helper()
	if other, taken := seen[key]; taken {
		t.Fatalf("%v belongs to %s and %s", key, other, owner)
	}
	seen[key] = owner
}

// TestDeterminism compiles the same file twice, and with another seed.
func TestDeterminism(t *testing.T) {
	for name, testbed := range routedShapes {
		if a, b := mustCompile(t, testbed).Hash(), mustCompile(t, testbed).Hash(); a != b {
			t.Errorf("%s: two plans, %s and %s", name, a, b)
		}
	}
	one, two := generated("leaf-spine", "leaves=2", "spines=2", "hosts-per-leaf=2"),
		generated("leaf-spine", "leaves=2", "spines=2", "hosts-per-leaf=2")
	two.Seed = 2
	const said = "nodes: {h0: {sysctls: {net.ipv4.tcp_keepalive_time: 60}, management: {publish: " +
		"[\"8080:80\"]}}}\naddressing: {management4: 10.9.0.0/24}\nfabric: {topology: single-switch, " +
		"params: {hosts: 2}}\n"
	here, below := mustCompileText(t, "name: t\n"+said), mustCompileText(t, "# Elsewhere.\nname: t\n"+said)
	if here.Hash() != below.Hash() || here.Requires[0].Where == below.Requires[0].Where {
		t.Errorf("the same, a line further down: %s and %s", here.Hash(), below.Hash())
	}
	a, b := mustCompile(t, one), mustCompile(t, two)
	if a.Nodes[0].MachineID == b.Nodes[0].MachineID || a.Switches[0].HashSeed == b.Switches[0].HashSeed {
		t.Error("another seed gives the same machine ids or hash seeds")
	}
	if a.Nodes[0].NICs[0].MAC != b.Nodes[0].NICs[0].MAC || a.Hosts[0] != b.Hosts[0] {
		t.Error("another seed gives other MACs or addresses")
	}
}

// TestMAC compares with the standard library's parser.
func TestMAC(t *testing.T) {
	m := macOf(0x01020304)
	if m.String() != "02:00:01:02:03:04" {
		t.Errorf("got %s", m)
	}
	want, err := net.ParseMAC(m.String())
	if err != nil || !bytes.Equal(want, m[:]) {
		t.Errorf("net.ParseMAC has %v, %v", want, err)
	}
	var back MAC
	if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
		t.Errorf("parsed %s, %v", back, err)
	}
	for _, bad := range []string{"", "02:00:01:02:03", "02-00-01-02-03-04", "02:00:01:02:03:0g",
		"02:00:01:02:03:041", "0:200:01:02:03:04"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q parses as %s", bad, back)
		}
	}
}

// TestRoutesGrowWithSwitches: a switch has a route to each other group and switch. Only an edge
// switch has a route to each of its own nodes.
func TestRoutesGrowWithSwitches(t *testing.T) {
	const leaves, spines = 32, 8
	for _, hosts := range []int{4, 32} {
		p := mustCompile(t, generated("leaf-spine", "leaves=32", "spines=8",
			fmt.Sprintf("hosts-per-leaf=%d", hosts)))
		for _, s := range p.Switches {
			own := 0
			if s.Role == "leaf" {
				own = hosts
			}
			// Per family: groups' loopbacks, switches' loopbacks and leaves' links.
			if most := 2 * (own + leaves + (leaves + spines) + leaves); s.Routes.Len() > most {
				t.Errorf("%d hosts: %s has %d routes, want at most %d", len(p.Nodes), s.Name, s.Routes.Len(),
					most)
			}
		}
		if n := len(p.Nodes[0].Routes); n != 6 {
			t.Errorf("a node with one NIC has %d routes, want a default in two tables and one to the "+
				"loopbacks, each in two families", n)
		}
	}
}

// TestBridged: one subnet, permanent neighbours up to 16 NICs, and a separate table for each NIC.
func TestBridged(t *testing.T) {
	for _, hosts := range []int{2, 16, 17} {
		testbed := generated("single-switch", fmt.Sprintf("hosts=%d", hosts))
		testbed.Fabric.Switch.Kind = spec.Bridge
		p := mustCompile(t, testbed)
		checkInvariants(t, p)
		subnets := map[netip.Prefix]bool{}
		for _, n := range p.Nodes {
			nic := n.NICs[0]
			if len(n.Loopbacks) != 0 || len(nic.Addrs) != 2 || len(p.Switches[0].Ports[0].Addrs) != 0 {
				t.Fatalf("%s: %+v", n.Name, nic)
			}
			for _, a := range nic.Addrs {
				subnets[a.Masked()] = true
				if a.Addr() == a.Masked().Addr() {
					t.Errorf("%s has the subnet's own address %s", n.Name, a)
				}
			}
			want := 2 * (hosts - 1)
			if hosts > 16 {
				want = 0
			}
			if len(nic.Neighbors) != want {
				t.Fatalf("%d hosts: %s has %d neighbours, want %d", hosts, n.Name, len(nic.Neighbors), want)
			}
		}
		if len(subnets) != 2 || len(p.Hosts) != 4*hosts { // a node and its NIC
			t.Errorf("%d hosts: subnets %v, %d names", hosts, subnets, len(p.Hosts))
		}
	}
}

// TestQueueDefaults: the switch's buffer, less on a slow link, and never below sixteen frames.
func TestQueueDefaults(t *testing.T) {
	p, err := compileText(leafSpineFile("  switch: {kind: router, buffer: 1MiB}", "  links:",
		"    host: {rate: 10mbit}", "    leaf1--spine1: {queue: 64KiB}",
		"    leaf2--spine1: {rate: 1mbit, mtu: 9000}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"leaf1--spine2": 1 << 20,          // the buffer: 100 ms of 1 Gbit/s would be 12.5 MB
		"h0--leaf1":     125_000,          // 100 ms of 10 Mbit/s
		"leaf1--spine1": 64 << 10,         // from the file
		"leaf2--spine1": 16 * (9000 + 14), // 100 ms of 1 Mbit/s would be one frame
	} {
		if l := p.Link(name); int(l.AToB.Queue) != want || int(l.BToA.Queue) != want {
			t.Errorf("%s: queues %d and %d bytes, want %d", name, l.AToB.Queue, l.BToA.Queue, want)
		}
	}
}

// TestRequirements: each value of the file that needs netem is one requirement.
func TestRequirements(t *testing.T) {
	p, err := compileText("requires: [ping]\n" +
		leafSpineFile("  switch: {kind: router}", "  links:", "    fabric: {delay: 5us}",
			"    h1--leaf1: {b-to-a: {loss: 0.1%}}",
			"steps:", "  - link: {where: h0--leaf1, set: {corrupt: 1%}}",
			"  - link: {where: h0--leaf1, set: {rate: 10mbit}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Requirement{
		{"ping", "the file requires it", "f:1:12", false},
		{"netem", "loss 0.1% on h1--leaf1", "f:9:32", false},
		{"netem", "delay 5us on leaf1--spine1 and 3 more", "f:8:21", false},
		{"netem", "corrupt 1% on h0--leaf1", "f:11:45", false},
	}
	if diff := cmp.Diff(want, p.Requires); diff != "" {
		t.Error(diff)
	}
}

// TestRanks: by node, then by rank of the node; rank r has NIC r modulo NICs.
func TestRanks(t *testing.T) {
	testbed := generated("rail-optimized", "servers=2", "rails=2")
	testbed.Nodes = spec.Ordered[spec.Node]{{Key: "h0", Value: spec.Node{Ranks: 3}}}
	var got []string
	for _, r := range mustCompile(t, testbed).Ranks {
		got = append(got, fmt.Sprintf("%d %s:%s", r.Rank, r.Node, r.NIC))
	}
	want := []string{"0 h0:eth0", "1 h0:eth1", "2 h0:eth0", "3 h1:eth0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkCompile1024(b *testing.B) {
	testbed := generated("leaf-spine", "leaves=32", "spines=8", "hosts-per-leaf=32")
	for b.Loop() {
		mustCompile(b, testbed)
	}
}

// TestPortsInAnyOrder: links find their ports if the file names them out of order.
func TestPortsInAnyOrder(t *testing.T) {
	p := mustCompile(t, wired("a b", "s t", "a:eth1 -- s:p2", "b -- s:p0", "a:eth0 -- t", "s:p1 -- t"))
	for _, l := range p.Links {
		for _, end := range []End{l.A, l.B} {
			var ifaces []Interface
			if node := p.Node(end.Node); node != nil {
				ifaces = node.NICs
			} else {
				ifaces = p.Switch(end.Node).Ports
			}
			i := slices.IndexFunc(ifaces, func(i Interface) bool { return i.Name == end.Port })
			if i < 0 || ifaces[i].Link != l.Name {
				t.Errorf("%s of link %s: interfaces %+v", end, l.Name, ifaces)
			}
		}
	}
}
