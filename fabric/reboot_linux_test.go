package fabric

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// dualToR is a fabric whose nodes have a NIC at each of two ToRs.
func dualToR(t *testing.T, kind string) *plan.Plan {
	t.Helper()
	return plantest.Compile(t, "name: t\nfabric: {topology: hpn, params: {segments: 1, servers: 2, "+
		"rails: 1, aggs: 1}, switch: {kind: "+kind+"}, links: {default: {rate: 100mbit}}}\n")
}

const deadToR, deadLink = "tor-s1r1a", "h0--tor-s1r1a"

func rebooted(t *testing.T, lasts string) spec.Fault {
	t.Helper()
	f, err := spec.ParseFault("fault", "{name: dead, where: "+deadToR+", reboot: true, for: "+lasts+"}")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestRebootTakesCarriers: while a switch reboots, its nodes have no carrier at their NICs, and route around
// it. The carriers return with the switch.
func TestRebootTakesCarriers(t *testing.T) {
	hosttest.Need(t, hosttest.Netns, hosttest.Ping)
	for _, kind := range []string{"soft", "router"} {
		t.Run(kind, func(t *testing.T) { rebootTakesCarriers(t, dualToR(t, kind)) })
	}
}

func rebootTakesCarriers(t *testing.T, p *plan.Plan) {
	ctx := context.Background()
	f, ns := build(t, p)
	states := func() (found []string) {
		links, err := f.Links(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.A.Node == "h0" || l.A.Node == "h1" {
				found = append(found, l.A.Operstate)
			}
		}
		return found
	}
	up := []string{"up", "up", "up", "up"}
	dead := []string{"down", "up", "down", "up"}
	if got := states(); !slices.Equal(got, up) {
		t.Fatalf("before the reboot the NICs are %v", got)
	}
	if err := f.AddFault(ctx, p, rebooted(t, "1h")); err != nil {
		t.Fatal(err)
	}
	if got := states(); !slices.Equal(got, dead) {
		t.Errorf("during the reboot the NICs are %v, want %v", got, dead)
	}
	if err := f.Verify(ctx); err != nil {
		t.Errorf("during the reboot: %v", err)
	}
	before := linkState(t, f, "h1--tor-s1r1b").A.Counters.RxPackets
	flows(t, ns["h0"], addrs(p, "h1")[0], 50, 100)
	hosttest.Eventually(t, "50 packets by the other ToR", func() error {
		return wantAtLeast(linkState(t, f, "h1--tor-s1r1b").A.Counters.RxPackets-before, 50)
	})
	if _, err := f.ClearFaults("dead"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "all NICs up after the reboot", func() error { return wantEqual(states(), up) })
	if err := f.Verify(ctx); err != nil {
		t.Errorf("after the reboot: %v", err)
	}
	for _, addr := range addrs(p, "h1") {
		if out, ok := ping(t, ns["h0"], "-c1", addr.String()); !ok {
			t.Errorf("after the reboot h0 does not reach %v: %s", addr, out)
		}
	}
}

// TestLinkStateDuringReboot: the reboot holds its links, and a link that was taken down meanwhile stays down.
// A fault that is cleared ends the reboot.
func TestLinkStateDuringReboot(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	for _, kind := range []string{"soft", "router"} {
		t.Run(kind, func(t *testing.T) { linkStateDuringReboot(t, dualToR(t, kind)) })
	}
}

func linkStateDuringReboot(t *testing.T, p *plan.Plan) {
	ctx := context.Background()
	f, _ := build(t, p)
	state := func(link string) string { return linkState(t, f, link).A.Operstate }
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
	do(f.AddFault(ctx, p, rebooted(t, "1h")))
	do(f.SetLinkState(ctx, deadLink, true))
	if got := state(deadLink); got != "down" {
		t.Errorf("a link of the switch that reboots is %s", got)
	}
	do(f.SetLinkState(ctx, deadLink, false))
	ended, err := f.ClearFaults("dead")
	if do(err); len(ended) != 1 || ended[0].Matched != 3 || ended[0].Hit != 3 {
		t.Errorf("the reboot of a switch with three ports did %+v", ended)
	}
	if got := []string{state(deadLink), state("h1--tor-s1r1a")}; !slices.Equal(got,
		[]string{"down", "up"}) {
		t.Errorf("after the reboot the links are %v", got)
	}
	do(f.SetLinkState(ctx, deadLink, true))
	if got := state(deadLink); got != "up" {
		t.Errorf("the link does not come up: %s", got)
	}
	do(f.AddFault(ctx, p, rebooted(t, "1h")))
	began := time.Now()
	if err := f.Close(); err != nil || time.Since(began) > time.Minute {
		t.Errorf("closed with a reboot in force after %v: %v", time.Since(began), err)
	}
}

func wantAtLeast(got, want uint64) error {
	if got < want {
		return fmt.Errorf("got %d, want at least %d", got, want)
	}
	return nil
}

func wantEqual(got, want []string) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
