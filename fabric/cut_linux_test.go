package fabric

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// TestDirectionIsCut: packets in the cut direction are lost and the others arrive. Both ends keep
// their carrier, and the kernel shows the cut to other programs.
func TestDirectionIsCut(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	set := func(dir Direction, up bool) {
		t.Helper()
		if err := f.SetDirectionState(ctx, "h0--leaf1", dir, up); err != nil {
			t.Fatal(err)
		}
		if err := f.Verify(ctx); err != nil {
			t.Errorf("%v up %t: %v", dir, up, err)
		}
	}
	h0, h1 := addrs(p, "h0")[0], addrs(p, "h1")[0]
	for _, c := range []struct {
		dir          Direction
		there, back  bool
		atH0, atLeaf string // what tc prints
	}{
		{AToB, false, true, "qdisc blackhole 9:", "qdisc tbf 1:"},
		{BToA, true, false, "qdisc tbf 1:", "qdisc blackhole 9:"},
		{Both, false, false, "qdisc blackhole 9:", "qdisc blackhole 9:"},
	} {
		set(c.dir, false)
		if got := crosses(t, ns["h0"], ns["h1"], h1); got != c.there {
			t.Errorf("%v cut: h0 to h1 arrives %t, want %t", c.dir, got, c.there)
		}
		if got := crosses(t, ns["h1"], ns["h0"], h0); got != c.back {
			t.Errorf("%v cut: h1 to h0 arrives %t, want %t", c.dir, got, c.back)
		}
		state := linkState(t, f, "h0--leaf1")
		if state.A.Operstate != "up" || state.B.Operstate != "up" || !state.Up {
			t.Errorf("%v cut: an end lost its carrier: %+v", c.dir, state)
		}
		if state.AToB.Up != c.there || state.BToA.Up != c.back {
			t.Errorf("%v cut: states %t and %t, want %t and %t", c.dir, state.AToB.Up, state.BToA.Up, c.there,
				c.back)
		}
		if drops := state.AToB.Shaper.Drops; !c.there && drops == 0 {
			t.Errorf("%v cut: nothing is counted as dropped", c.dir)
		}
		for node, want := range map[string]string{"h0": c.atH0, "leaf1": c.atLeaf} {
			dev := state.A.Port
			if node == "leaf1" {
				dev = state.B.Port
			}
			if out, err := in(t, ns[node], "tc", "qdisc", "show", "dev", dev); err != nil ||
				!strings.HasPrefix(out, want) {
				t.Errorf("%v cut: tc shows %q at %s, want %q", c.dir, out, node, want)
			}
		}
		set(c.dir, true)
		if !crosses(t, ns["h0"], ns["h1"], h1) || !crosses(t, ns["h1"], ns["h0"], h0) {
			t.Errorf("%v cut and whole again: it is not", c.dir)
		}
	}
	if err := f.SetDirectionState(ctx, "nothing", AToB, false); err == nil {
		t.Error("a link that is not there was cut")
	}
}

// crosses sends echo requests and reports whether they arrive, whether or not
// the replies do.
func crosses(t *testing.T, from, to *kernel.Namespace, addr netip.Addr) bool {
	t.Helper()
	const sent = 3
	before := echoes(t, to)
	ping(t, from, "-q", "-c3", "-i0.01", "-W0.1", addr.String())
	switch got := echoes(t, to) - before; got {
	case 0:
		return false
	case sent:
		return true
	default:
		t.Errorf("%d of %d arrive", got, sent)
		return false
	}
}

// echoes is how many echo requests have reached a node, from the two lines
// "Icmp: NAME..." and "Icmp: VALUE..." (RFC 1213's counters).
func echoes(t *testing.T, ns *kernel.Namespace) int {
	t.Helper()
	out, err := in(t, ns, "cat", "/proc/net/snmp")
	if err != nil {
		t.Fatal(out)
	}
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Icmp:":
		case names == nil:
			names = fields
		default:
			value, err := strconv.Atoi(fields[slices.Index(names, "InEchos")])
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no counters in %q", out)
	return 0
}

// TestCutOutlastsOtherChanges: settings changed meanwhile come with the end of
// the cut, and the end of the link's being down is the end of it.
func TestCutOutlastsOtherChanges(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	ctx := context.Background()
	p := leafSpine(t, 1, 1, 2)
	f, ns := build(t, p)
	const name = "h0--leaf1"
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
	slow, free := p.Links[0].AToB, p.Links[0].AToB
	slow.Rate, free.Rate = 5e6, 0
	do(f.SetDirectionState(ctx, name, AToB, false))
	do(f.SetDirectionState(ctx, name, AToB, false)) // twice is once
	for _, d := range []plan.Direction{slow, free} {
		do(f.SetLink(ctx, name, AToB, d))
		if crosses(t, ns["h0"], ns["h1"], addrs(p, "h1")[0]) {
			t.Error("a change of settings ended the cut")
		}
		do(f.SetDirectionState(ctx, name, AToB, true))
		if got := linkState(t, f, name).AToB; got.Rate != d.Rate || !got.Up {
			t.Errorf("after the cut %+v, want rate %v", got, d.Rate)
		}
		do(f.SetDirectionState(ctx, name, AToB, false))
	}
	do(f.SetLinkState(ctx, name, false))
	if err := f.SetDirectionState(ctx, name, AToB, true); err == nil ||
		!strings.Contains(err.Error(), "the whole link is down") {
		t.Errorf("one direction up of a link that is down: %v", err)
	}
	do(f.SetLinkState(ctx, name, true))
	if got := linkState(t, f, name); !got.Up || !got.AToB.Up ||
		!crosses(t, ns["h0"], ns["h1"], addrs(p, "h1")[0]) {
		t.Errorf("after the link came up %+v", got)
	}
	// Behind our back, as tc does it.
	do(f.SetDirectionState(ctx, name, AToB, false))
	if out, err := in(t, ns["h0"], "tc", "qdisc", "del", "dev", "eth0", "root"); err != nil {
		t.Fatal(out)
	}
	if err := f.Verify(ctx); err == nil || !strings.Contains(err.Error(), "want only blackhole") {
		t.Errorf("a cut that was undone by tc: %v", err)
	}
	if _, err := f.Repair(ctx); err != nil || linkState(t, f, name).AToB.Up ||
		crosses(t, ns["h0"], ns["h1"], addrs(p, "h1")[0]) {
		t.Errorf("a repair of a cut does not cut: %v", err)
	}
	changed, _, err := f.Converge(ctx, p, nil)
	if err != nil || !slices.ContainsFunc(changed, func(r Repair) bool {
		return r.What == "set h0--leaf1 a-to-b up: it was down"
	}) {
		t.Errorf("converge: %+v, error %v", changed, err)
	}
	if !crosses(t, ns["h0"], ns["h1"], addrs(p, "h1")[0]) {
		t.Error("a converged link is still cut")
	}
}
