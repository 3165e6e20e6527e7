package runner

import (
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// A change of a link that meets no packet tests nothing. The steps run one after the other, so that no time
// decides which packets a change meets.
func TestLinkStepsThatMeetNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const head = "fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}}\n" +
		"steps:\n- capture: {at: [all], file: run.pcapng}\n"
	change := func(what string) string { return "- link: {where: " + what + "}\n" }
	const wait = "- sleep: 1s\n"
	const ping = "- exec: {nodes: [h1], command: [ping, -c1, -W5, h2]}\n"
	const pingLost = "- exec: {nodes: [h1], command: [bash, -c, 'ping -c1 -W1 h0; true']}\n"
	const checks = "checks:\n- packets: {rule: {never: 'railbed.verdict == \"trim\"'}}\n"
	for name, c := range map[string]struct {
		steps string
		met   bool
	}{
		"before the traffic":        {change("h1--leaf1, set: {loss: 50%}, for: 1ms") + wait + ping, false},
		"down before the traffic":   {change("h1--leaf1, state: down, for: 1ms") + wait + ping, false},
		"at another link":           {change("h0--leaf1, set: {delay: 1ms}") + ping, false},
		"another link down":         {change("h0--leaf1, state: down") + ping, false},
		"to what the link had":      {change("h0--leaf1, set: {loss: 0%}") + ping, true},
		"with traffic":              {change("h1--leaf1, set: {delay: 1ms}") + ping, true},
		"down with traffic":         {change("h0--leaf1, state: down") + pingLost, true},
		"the other direction alone": {change("h1--leaf1 b-to-a, set: {delay: 1ms}") + ping, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, head+c.steps+checks)
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Contains(r.Reason, "met no packet")
			if said == c.met || said && r.Verdict != verdict.Inconclusive {
				t.Errorf("met %t: %s: %s", c.met, r.Verdict, r.Reason)
			}
		})
	}
}

// A node's kernel drops packets for a link that is down before any tap sees them. The change has met them,
// and checks count them. Packets to the node itself, and the kernel's own packets, are not for the link.
func TestLinkDownAtTheOnlySender(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	// An interface that came up sends two MLD reports, up to a second apart (RFC 3810, 9.11).
	const warmUp = "- exec: {nodes: [h0], command: [ping, -c1, -W5, h1]}\n- sleep: 2100ms\n"
	const sends = "- exec: {nodes: [h0], command: [bash, -c, " +
		"'for i in 1 2 3 4 5; do echo x > /dev/udp/h1/9; done']}\n"
	const toItself = "- exec: {nodes: [h0], command: [ping, -c2, -i0.2, h0]}\n"
	const checks = "checks:\n- packets: {drops: {count: '== 0'}}\n- packets: {lossless: {}}\n" +
		"- packets: {outage: {longest: '<= 1h'}}\n"
	for name, c := range map[string]struct {
		kind, change, steps string
		met                 bool
	}{
		"soft":                           {"soft", "h0--leaf1, state: down", sends, true},
		"router":                         {"router", "h0--leaf1, state: down", sends, true},
		"bridge":                         {"bridge", "h0--leaf1, state: down", sends, true},
		"bridge, one direction":          {"bridge", "h0--leaf1 a-to-b, state: down, for: 3s", sends, true},
		"soft, to itself":                {"soft", "h0--leaf1, state: down", toItself, false},
		"bridge, to itself":              {"bridge", "h0--leaf1, state: down", toItself, false},
		"bridge, to itself, one way":     {"bridge", "h0--leaf1 a-to-b, state: down", toItself, false},
		"soft, the other link, and down": {"soft", "h2--leaf1, state: down", sends, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: "+c.kind+
				"}}\nsteps:\n- capture: {at: [all], file: run.pcapng}\n"+warmUp+"- link: {where: "+c.change+
				"}\n"+c.steps+checks)
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if said := strings.Contains(r.Reason, "met no packet"); said == c.met {
				t.Errorf("met %t: %s: %s", c.met, r.Verdict, r.Reason)
			}
			if !c.met {
				return
			}
			if got := r.Checks[0]; got.Verdict != verdict.Fail ||
				!strings.HasPrefix(got.Summary, "5 packets were dropped") {
				t.Errorf("drops: %s: %s, want FAIL by 5: %q", got.Verdict, got.Summary, got.Details)
			}
			for _, check := range r.Checks[1:] {
				if check.Verdict == verdict.Pass {
					t.Errorf("%s: PASS beside lost packets", check.Name)
				}
			}
		})
	}
}
