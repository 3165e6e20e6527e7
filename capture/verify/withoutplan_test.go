package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
)

// TestWithoutAPlan: no tap says which ports there are, so that what was recorded may be a part. A check that
// rests on all ports of a kind needs the plan, or the ports that the workload names.
func TestWithoutAPlan(t *testing.T) {
	judge := func(s *scene, check Check, want verdict.Verdict, says string) {
		t.Helper()
		results, _, err := Run(t.Context(), bytes.NewReader(s.write()), Options{}, check)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.Verdict != want || !strings.Contains(text(r), says) {
			t.Errorf("got %s\nwant %s with %q", text(r), want, says)
		}
	}
	ring := func(untapped func(tap string) bool) *scene {
		s := newScene(t)
		s.ring(4)
		s.now += 1_000_000
		s.sightings = slices.DeleteFunc(s.sightings, func(k sighting) bool { return untapped(k.tap) })
		for _, k := range s.plan.Switches {
			for _, port := range k.Ports {
				if name := k.Name + ":" + port.Name; untapped(name) {
					s.untapped[name] = true
				}
			}
		}
		for _, n := range s.plan.Nodes {
			for _, nic := range n.NICs {
				if name := n.Name + ":" + nic.Name; untapped(name) {
					s.untapped[name] = true
				}
			}
		}
		return s
	}
	all := ring(func(string) bool { return false })
	judge(all, NewRankNIC(all.workload), pass, "")
	switches := ring(func(tap string) bool { return strings.HasPrefix(tap, "h") })
	judge(switches, NewRankNIC(switches.workload), unclear, "not recorded: h0:eth0")
	one := ring(func(tap string) bool { return strings.HasPrefix(tap, "h") && tap != "h0:eth0" })
	judge(one, NewRankNIC(one.workload), unclear, "not recorded: h1:eth0")
	within := ring(func(tap string) bool { return strings.HasPrefix(tap, "spine") })
	within.remove(func(k sighting) bool {
		return k.tap == "leaf1:p2" || k.tap == "leaf1:p3" || k.tap == "leaf2:p2" || k.tap == "leaf2:p3"
	})
	judge(within, newRailLocal(within.workload), unclear,
		"without a plan the links between switches are not known")
}
