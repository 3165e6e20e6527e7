package fabric

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// conversation is a TCP connection between two nodes. It sends data when a test requests it, and
// never reconnects.
type conversation struct {
	here, there net.Conn
}

func converse(t *testing.T, p *plan.Plan, ns map[string]*kernel.Namespace, from, to string) *conversation {
	t.Helper()
	var listener net.Listener
	if err := ns[to].Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(addrs(p, to)[0].String(), "5001"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := &conversation{}
	if err := ns[from].Do(func() (err error) {
		c.here, err = net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.there, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.here.Close(); c.there.Close() })
	return c
}

// goesOn fails the test unless a line gets through, both ways.
func (c *conversation) goesOn(t *testing.T, when string) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{c.here, c.there}, {c.there, c.here}} {
		sent, got := []byte("still there\n"), make([]byte, len("still there\n"))
		deadline := time.Now().Add(5 * time.Second)
		pair[0].SetDeadline(deadline)
		pair[1].SetDeadline(deadline)
		_, err := pair[0].Write(sent)
		if err == nil {
			_, err = pair[1].Read(got)
		}
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%s, the connection between others says %q, error %v", when, got, err)
		}
	}
}

// sentPackets returns the number of packets that a link's end A sent; a new interface begins at 0.
func sentPackets(t *testing.T, f *Fabric, link string) uint64 {
	t.Helper()
	return linkState(t, f, link).A.Counters.TxPackets
}

func TestRepairUndoesEveryAlteration(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	for _, fabric := range []string{routed, bridged, crowded} {
		p := plantest.Compile(t, "name: t\nfabric: {"+fabric+", links: {default: {rate: 100mbit}}}\n")
		f, ns := build(t, p)
		var undamaged *conversation
		if fabric == routed { // h2 and h3 are on leaf2, which stays unchanged
			undamaged = converse(t, p, ns, "h2", "h3")
		}
		for _, c := range damages {
			if c.fabric != fabric {
				continue
			}
			want, made := c.made(t, p, ns)
			if !made {
				continue
			}
			when := fmt.Sprintf("after %s in %s", c.alter, c.node)
			if f.Verify(ctx) == nil {
				t.Fatalf("%s, nothing differs", when)
			}
			repairs, err := f.Repair(ctx)
			if err != nil {
				t.Fatalf("%s: repair: %v\nafter %v", when, err, repairs)
			}
			if err := f.Verify(ctx); err != nil {
				t.Fatalf("%s and a repair: %v", when, err)
			}
			tellsRepair(t, repairs, want, when)
			if again, err := f.Repair(ctx); err != nil || len(again) != 0 {
				t.Errorf("%s: a second repair finds %v, error %v", when, again, err)
			}
			for _, to := range []string{"h1", p.Nodes[len(p.Nodes)-1].Name} {
				for _, addr := range addrs(p, to) {
					if out, ok := ping(t, ns["h0"], "-c1", addr.String()); !ok {
						t.Fatalf("%s and a repair, h0 does not reach %s:\n%s", when, addr, out)
					}
				}
			}
			if undamaged != nil {
				undamaged.goesOn(t, when)
			}
		}
	}
}

// tellsRepair looks for the text of Verify, in the past tense. A difference that only waits for
// another repair, such as a carrier that waits for the other end, is not reported.
func tellsRepair(t *testing.T, repairs []Repair, want, when string) {
	t.Helper()
	want = strings.Replace(want, "kernel has", "kernel had", 1)
	if want == "set leaf1:" {
		want = "set spine1:p0: kernel had up false, want true"
	}
	if !slices.ContainsFunc(repairs, func(r Repair) bool {
		return strings.Contains(r.What, want) && strings.Contains(r.What, r.Where)
	}) {
		t.Errorf("%s: repaired %v, want %q", when, repairs, want)
	}
}

// TestRepairOfEverythingAtOnce does all damage to the same fabric, and then
// repairs it once.
func TestRepairOfEverythingAtOnce(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	p := plantest.Compile(t, "name: t\nfabric: {"+routed+", links: {default: {rate: 100mbit}}}\n")
	f, ns := build(t, p)
	undamaged := converse(t, p, ns, "h2", "h3")
	damaged := 0
	for _, c := range damages {
		if c.fabric != routed {
			continue
		}
		if _, err := in(t, ns[c.node], c.command()...); err == nil { // some already lack the object
			damaged++
		}
	}
	if damaged < 20 {
		t.Fatalf("only %d damages", damaged)
	}
	repairs, err := f.Repair(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(repairs) < 20 {
		t.Errorf("after %d damages %d repairs: %v", damaged, len(repairs), repairs)
	}
	if out, ok := ping(t, ns["h0"], "-c1", addrs(p, "h3")[0].String()); !ok {
		t.Errorf("h0 does not reach h3:\n%s", out)
	}
	undamaged.goesOn(t, "after everything")
}

// TestRepairLeavesTheRest checks that undamaged objects stay: interfaces of others, processes,
// other links' counters, and links that are down on request.
func TestRepairLeavesTheRest(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ctx := context.Background()
	p := plantest.Compile(t, "name: t\nfabric: {"+routed+", links: {default: {rate: 100mbit}}}\n")
	var traced []string
	ns := namespaces(t, p)
	f, err := Build(ctx, p, ns, Options{Calibration: testCalibration(t), Trace: func(line string) {
		traced = append(traced, line)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if out, err := in(t, ns["leaf1"], "ip", "link", "add", "mine0", "type", "veth", "peer", "name",
		"mine1"); err != nil {
		t.Fatal(out)
	}
	if err := f.SetLinkState(ctx, "leaf1--spine2", false); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "60")
	if err := ns["h0"].Do(sleeper.Start); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	before := sentPackets(t, f, "h1--leaf1")
	if out, err := in(t, ns["h0"], "ip", "link", "delete", "eth0"); err != nil {
		t.Fatal(out)
	}
	traced = nil
	repairs, err := f.Repair(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range repairs {
		if !strings.HasPrefix(r.Where, "h0") && r.Where != "leaf1" && r.Where != "leaf1:p0" {
			t.Errorf("repaired %+v", r)
		}
	}
	for _, line := range traced {
		words := strings.Fields(line)
		if !slices.Contains(words, "h0") && !slices.Contains(words, "leaf1") {
			t.Errorf("changed another namespace: %s", line)
		}
		if strings.Contains(line, " p1 ") || strings.Contains(line, " p2 ") ||
			strings.Contains(line, "mine") {
			t.Errorf("changed another link: %s", line)
		}
	}
	if err := sleeper.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process in h0: %v", err)
	}
	if got := linkState(t, f, "leaf1--spine2"); got.Up || got.A.Operstate == "up" {
		t.Errorf("a link that is down on request: %+v", got)
	}
	if after := sentPackets(t, f, "h1--leaf1"); after < before {
		t.Errorf("another link's counter went from %d to %d", before, after)
	}
	if out, err := in(t, ns["leaf1"], "ip", "link", "show", "mine0"); err != nil {
		t.Errorf("somebody else's interface: %s", out)
	}
}

// TestRepairSaysWhatItCannotDo damages state that is restored at once.
func TestRepairSaysWhatItCannotDo(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ctx := context.Background()
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	// The plan requests a route that the kernel refuses now, and an MTU.
	h := f.hosts[0]
	h.routes = append(h.routes, kernel.Route{
		Dst:   h.routes[0].Dst,
		Table: 77,
		Hops:  []kernel.NextHop{{Via: addrs(p, "h1")[0].Next(), Index: 4711, Dev: "eth7", Weight: 1}},
	})
	if out, err := in(t, ns["h0"], "ip", "link", "set", "eth0", "mtu", "1400"); err != nil {
		t.Fatal(out)
	}
	repairs, err := f.Repair(ctx)
	if err == nil || !strings.Contains(err.Error(), "table 77") ||
		!strings.Contains(err.Error(), `apply "ip -n h0 route replace `) {
		t.Errorf("error %v, want the route and why the kernel refuses it", err)
	}
	if strings.Contains(fmt.Sprint(err), "MTU") || len(repairs) != 1 ||
		repairs[0] != (Repair{"h0:eth0", "set MTU of h0:eth0: kernel had 1400, want 1500"}) {
		t.Errorf("repaired %+v, error %v; want the MTU alone", repairs, err)
	}
	h.routes = h.routes[:len(h.routes)-1]
	if err := f.Verify(ctx); err != nil {
		t.Error(err)
	}
}

func TestConvergeFollowsThePlan(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	slow := p.Links[0].AToB
	slow.Rate = 10e6
	if err := f.SetLink(ctx, "h0--leaf1", AToB, slow); err != nil {
		t.Fatal(err)
	}
	if err := f.SetLinkState(ctx, "h1--leaf1", false); err != nil {
		t.Fatal(err)
	}
	// A link that is damaged, too: the settings come with its repair.
	if out, err := in(t, ns["h0"], "ip", "link", "delete", "eth0"); err != nil {
		t.Fatal(out)
	}
	changed, repaired, err := f.Converge(ctx, p, nil)
	want := []Repair{{"h0--leaf1 a-to-b", "change h0--leaf1 a-to-b: it had rate 10mbit, want 100mbit"},
		{"h1--leaf1", "set h1--leaf1 up: it was down"}}
	if err != nil || !slices.Equal(changed, want) || len(repaired) == 0 || repaired[0].Where != "h0:eth0" {
		t.Errorf("changed %v, repaired %v, error %v", changed, repaired, err)
	}
	another := plantest.Compile(t,
		"name: t\nfabric: {topology: leaf-spine, params: {leaves: 1, spines: 1, hosts-per-leaf: 2}, "+
			"switch: {kind: router}, links: {default: {rate: 100mbit}, \"h0--leaf1\": {rate: 50mbit}}}\n")
	changed, repaired, err = f.Converge(ctx, another, nil)
	if err != nil || len(changed) != 2 || len(repaired) != 0 {
		t.Errorf("another plan: changed %v, repaired %v, error %v", changed, repaired, err)
	}
	if got := linkState(t, f, "h0--leaf1"); got.AToB.Rate != 50e6 || got.BToA.Rate != 50e6 ||
		got.AToB.Burst == 0 {
		t.Errorf("another plan's link: %+v", got)
	}
	impossible := plantest.Compile(t,
		"name: t\nfabric: {topology: leaf-spine, params: {leaves: 1, spines: 1, hosts-per-leaf: 2}, "+
			"switch: {kind: router}, links: {default: {rate: 100mbit}}}\n")
	impossible.Links[1].AToB.Queue = 10
	if changed, _, err := f.Converge(ctx, impossible, nil); err == nil || len(changed) != 0 {
		t.Errorf("impossible plan: changed %v, error %v", changed, err)
	}
	if got := linkState(t, f, "h0--leaf1"); got.AToB.Rate != 50e6 {
		t.Errorf("an impossible plan changed a link: %+v", got)
	}
	if out, ok := ping(t, ns["h0"], "-c1", addrs(p, "h1")[0].String()); !ok {
		t.Error(out)
	}
}
