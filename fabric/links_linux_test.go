package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

func linkState(t testing.TB, f *Fabric, name string) LinkState {
	t.Helper()
	links, err := f.Links(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no link %s among %v", name, links)
	return LinkState{}
}

func TestLinksTellWhatPassed(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	for _, name := range []string{"h0", "leaf1"} { // whose multicast reports would be counted too
		if out, err := in(t, ns[name], "sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=1"); err != nil {
			t.Fatal(out)
		}
	}
	before := linkState(t, f, "h0--leaf1")
	const probes, length = 10, 14 + 1000
	if out, ok := ping(t, ns["h0"], fmt.Sprintf("-c%d", probes), "-i0.002", fmt.Sprintf("-s%d", length-14-28),
		addrs(p, "h1")[0].String()); !ok {
		t.Fatal(out)
	}
	after := linkState(t, f, "h0--leaf1")
	if before.A.Operstate != "up" || before.B.Operstate != "up" || !before.Up || before.A.Node != "h0" ||
		before.A.Port != "eth0" || before.B.Node != "leaf1" {
		t.Errorf("state %+v", before)
	}
	if before.AToB.Rate != 100e6 || before.AToB.Burst < 1514 || before.AToB.Achieved < 90e6 ||
		before.AToB.Achieved > 101e6 || before.AToB.Calibrated.IsZero() || before.AToB.Queue != 256<<10 {
		t.Errorf("direction %+v", before.AToB)
	}
	packets, bytes := after.A.Counters.TxPackets-before.A.Counters.TxPackets,
		after.A.Counters.TxBytes-before.A.Counters.TxBytes
	if packets != probes || bytes != probes*length {
		t.Errorf("h0 sent %d packets, %d bytes, want %d and %d", packets, bytes, probes, probes*length)
	}
	if got := after.B.Counters.RxBytes - before.B.Counters.RxBytes; got != probes*length {
		t.Errorf("leaf1 received %d bytes, want %d", got, probes*length)
	}
	if got := after.AToB.Shaper.Bytes - before.AToB.Shaper.Bytes; got != probes*length {
		t.Errorf("the shaper passed %d bytes, want %d", got, probes*length)
	}
	if after.AToB.Shaper.Drops != 0 || after.AToB.Shaper.BacklogBytes != 0 {
		t.Errorf("an idle shaper has %+v", after.AToB.Shaper)
	}
}

func TestLinksAreChangedLive(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	slow := p.Links[0].AToB
	slow.Rate, slow.Queue = 1e6, 3000
	if err := f.SetLink(ctx, "h0--leaf1", AToB, slow); err != nil {
		t.Fatal(err)
	}
	got := linkState(t, f, "h0--leaf1")
	if !got.AToB.Direction.Equal(slow) || !got.BToA.Direction.Equal(p.Links[0].BToA) {
		t.Errorf("after the change %+v and %+v", got.AToB, got.BToA)
	}
	if err := f.Verify(ctx); err != nil {
		t.Error(err)
	}
	// 100 packets at once through a queue of two: most are dropped, and reported as dropped.
	flows(t, ns["h0"], addrs(p, "h1")[0], 100, 1400)
	got = linkState(t, f, "h0--leaf1")
	if got.AToB.Shaper.Drops == 0 {
		t.Errorf("no drops: %+v", got.AToB.Shaper)
	}
	if err := f.SetLink(ctx, "h0--leaf1", Both, p.Links[0].AToB); err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(ctx); err != nil {
		t.Error(err)
	}
	unlimited := p.Links[0].AToB
	unlimited.Rate = 0
	if err := f.SetLink(ctx, "h0--leaf1", BToA, unlimited); err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(ctx); err != nil {
		t.Error(err)
	}
	if err := f.SetLink(ctx, "h0--leaf1", BToA, p.Links[0].BToA); err != nil {
		t.Fatal(err)
	}
	delayed := p.Links[0].AToB
	delayed.Delay = 1_000_000
	if err := f.SetLink(ctx, "h0--leaf1", Both, delayed); err != nil &&
		!errors.Is(err, verdict.ErrUnsupported) {
		t.Error(err)
	}
	tiny := p.Links[0].AToB
	tiny.Queue = 100
	if err := f.SetLink(ctx, "h0--leaf1", Both, tiny); err == nil ||
		!strings.Contains(err.Error(), "shape h0--leaf1 a-to-b: queue 100B holds no frame of MTU 1500") {
		t.Errorf("got %v", err)
	}
	if err := f.SetLink(ctx, "h9--leaf1", Both, tiny); err == nil ||
		!strings.Contains(err.Error(), "change link h9--leaf1: no such link") {
		t.Errorf("got %v", err)
	}
	if err := f.Verify(ctx); err != nil {
		t.Errorf("after refused changes: %v", err)
	}
}

func TestLinkGoesDownAndComesBack(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	for _, kind := range []string{"router", "soft"} {
		t.Run(kind, func(t *testing.T) {
			file := strings.Replace(leafSpineFile(2, 2, 1), "kind: router", "kind: "+kind, 1)
			linkGoesDownAndComesBack(t, plantest.Compile(t, file))
		})
	}
}

func linkGoesDownAndComesBack(t *testing.T, p *plan.Plan) {
	ctx := context.Background()
	f, ns := build(t, p)
	reaches := func(want bool, when string) {
		t.Helper()
		for _, addr := range addrs(p, "h1") {
			if out, ok := ping(t, ns["h0"], "-c1", "-W0.2", addr.String()); ok != want {
				t.Errorf("%s, h0 reaches h1 at %s: %t, want %t\n%s", when, addr, ok, want, out)
			}
		}
		if err := f.Verify(ctx); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	if err := f.SetLinkState(ctx, "h0--leaf1", false); err != nil {
		t.Fatal(err)
	}
	reaches(false, "with its link down")
	if got := linkState(t, f, "h0--leaf1"); got.Up || got.A.Operstate != "down" || got.B.Operstate != "down" {
		t.Errorf("with its link down %+v", got)
	}
	if err := f.SetLinkState(ctx, "h0--leaf1", true); err != nil {
		t.Fatal(err)
	}
	reaches(true, "with its link up again")
	// Both leaves lose the same spine: the other one carries everything.
	for _, link := range []string{"leaf1--spine1", "leaf2--spine1"} {
		if err := f.SetLinkState(ctx, link, false); err != nil {
			t.Fatal(err)
		}
	}
	reaches(true, "without the first spine")
	before := sent(t, f)
	flows(t, ns["h0"], addrs(p, "h1")[0], 50, 1)
	after := sentSince(t, f, before, 50)
	if after[0] != before[0] || after[1]-before[1] < 50 {
		t.Errorf("without the first spine, spines got %v, then %v", before, after)
	}
	for _, link := range []string{"leaf1--spine1", "leaf2--spine1"} {
		if err := f.SetLinkState(ctx, link, true); err != nil {
			t.Fatal(err)
		}
	}
	reaches(true, "with both spines again")
	flows(t, ns["h0"], addrs(p, "h1")[0], 200, 1)
	if again := sentSince(t, f, after, 200); again[0] == after[0] {
		t.Errorf("the first spine carries nothing after it came back: %v, then %v", after, again)
	}
	if err := f.SetLinkState(ctx, "nothing", true); err == nil {
		t.Error("a link that is not there was set")
	}
}
