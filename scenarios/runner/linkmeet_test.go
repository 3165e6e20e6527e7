package runner

import (
	"strings"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
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
