package fabric

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// Soft switches that do not start are an error that contains the cause, and leave nothing in the
// namespaces.
func TestSoftSwitchesThatDoNotStart(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: "+
		"{kind: soft}}\n")
	ns := namespaces(t, p)
	good := p.Switches[0].Soft.Buffer
	p.Switches[0].Soft.Buffer = 0
	f, err := Build(context.Background(), p, ns, Options{})
	if err == nil || !strings.Contains(err.Error(), "make buffer of leaf1") {
		t.Fatalf("built %v, %v; want the switch's reason", f, err)
	}
	p.Switches[0].Soft.Buffer = good
	if f, err = Build(context.Background(), p, ns, Options{}); err != nil {
		t.Fatalf("the namespaces are not as they were: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// What a switch keeps for PFC follows a link that is changed, both directions at once,
// and comes back with it. A change that the switch's buffer has no room for is refused,
// and the node's shaper is as it was.
func TestHeadroomFollowsChanges(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ctx := context.Background()
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: "+
		"{kind: soft, buffer: 1MB, pfc: {priorities: [3]}}, links: {default: {rate: 1gbit, delay: 10us}}}\n")
	f, err := Build(ctx, p, namespaces(t, p), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const name = "h0--leaf1"
	planned := *p.Switches[0].Ports[0].PFC
	thresholds := func() plan.PortPFC {
		links, err := f.Links(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return links[0].B.Soft.PFC
	}
	if links, err := f.Links(ctx); err != nil || links[0].Name != name || links[0].B.Node != "leaf1" ||
		thresholds() != planned {
		t.Fatalf("%v, %+v", err, links)
	}
	long := p.Links[0].AToB
	long.Delay, long.Rate = units.Duration(300*time.Microsecond), 900e6
	if err := f.SetLink(ctx, name, Both, long); err != nil {
		t.Fatal(err)
	}
	const underWay = 2 * 300e-6 * 900e6 / 8 // the bytes in flight, in both directions
	if at := thresholds(); at.Headroom < underWay || planned.Headroom >= underWay {
		t.Errorf("thresholds are %+v, and were %+v", at, planned)
	}
	much := long
	much.Delay, much.Rate = units.Duration(time.Second), 500e6
	if err := f.SetLink(ctx, name, Both, much); err == nil ||
		!strings.Contains(err.Error(), "keep buffer for lossless priorities at leaf1:p0: want ") {
		t.Errorf("got %v for a link that does not fit", err)
	}
	if got := f.named[name].AToB.Rate; got != long.Rate || !f.soft.named[name].AToB.Equal(long) {
		t.Errorf("the node's shaper is at %s and the link at %s, want what was before the refusal", got,
			f.soft.named[name].AToB.Rate)
	}
	if err := f.Verify(ctx); err != nil {
		t.Error(err)
	}
	slow := p.Links[0].AToB
	slow.Rate = 10e6 // as a single direction it would need megabytes: pauses take long on a slow way back
	for _, d := range []plan.Direction{p.Links[0].AToB, slow} {
		if err := f.SetLink(ctx, name, Both, d); err != nil {
			t.Fatal(err)
		}
	}
	changed, _, err := f.Converge(ctx, p, nil)
	if err != nil || len(changed) != 2 {
		t.Errorf("changed %+v, %v", changed, err)
	}
	hosttest.Eventually(t, fmt.Sprintf("thresholds %+v", planned), func() error {
		if now := thresholds(); now != planned {
			return fmt.Errorf("they are %+v", now)
		}
		return nil
	})
}

// Gentle Flow Control's thresholds follow a link in the same way: they become the thresholds of a
// plan with such a link.
func TestGFCFollowsChanges(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	ctx := context.Background()
	const text = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft, " +
		"buffer: 1MB, gfc: {kind: time, priorities: [3]}}, links: {default: {rate: 1gbit, delay: 10us}}}\n"
	p, long := plantest.Compile(t, text), plantest.Compile(t, strings.Replace(text, "10us", "100us", 1))
	f, err := Build(ctx, p, namespaces(t, p), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	become := func(want *plan.Plan) {
		t.Helper()
		if err := f.SetLink(ctx, "h0--leaf1", Both, want.Links[0].AToB); err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, fmt.Sprintf("thresholds %+v", want.Switches[0].Ports[0].GFC), func() error {
			links, err := f.Links(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if at := links[0].B.Soft.GFC; !cmp.Equal(at, *want.Switches[0].Ports[0].GFC) {
				return fmt.Errorf("they are %+v", at)
			}
			return nil
		})
	}
	become(p)
	become(long)
	become(p)
}
