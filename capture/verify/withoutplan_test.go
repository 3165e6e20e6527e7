package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/ranks"
	"railbed/internal/verdict"
	"railbed/testkit/verifytest"
)

// TestWithoutAPlan: no tap says which ports there are, so that what was recorded may be a part. A check that
// rests on all ports of a kind needs the plan, or the ports that the workload names.
func TestWithoutAPlan(t *testing.T) {
	judge := func(s *verifytest.Scene, check evidence.Check, want verdict.Verdict, says string) {
		t.Helper()
		results, _, err := evidence.Run(t.Context(), bytes.NewReader(s.Write()), evidence.Options{}, check)
		if err != nil {
			t.Fatal(err)
		}
		if r := results[0]; r.Verdict != want || !strings.Contains(verifytest.Text(r), says) {
			t.Errorf("got %s\nwant %s with %q", verifytest.Text(r), want, says)
		}
	}
	ring := func(untapped func(tap string) bool) *verifytest.Scene {
		s := verifytest.NewScene(t)
		s.Ring(4)
		s.Now += 1_000_000
		s.Sightings = slices.DeleteFunc(s.Sightings, func(k verifytest.Sighting) bool {
			return untapped(k.Tap)
		})
		for _, k := range s.Plan.Switches {
			for _, port := range k.Ports {
				if name := k.Name + ":" + port.Name; untapped(name) {
					s.Untapped[name] = true
				}
			}
		}
		for _, n := range s.Plan.Nodes {
			for _, nic := range n.NICs {
				if name := n.Name + ":" + nic.Name; untapped(name) {
					s.Untapped[name] = true
				}
			}
		}
		return s
	}
	all := ring(func(string) bool { return false })
	judge(all, ranks.NewRankNIC(all.Workload), pass, "")
	switches := ring(func(tap string) bool { return strings.HasPrefix(tap, "h") })
	judge(switches, ranks.NewRankNIC(switches.Workload), unclear, "not recorded: h0:eth0")
	one := ring(func(tap string) bool { return strings.HasPrefix(tap, "h") && tap != "h0:eth0" })
	judge(one, ranks.NewRankNIC(one.Workload), unclear, "not recorded: h1:eth0")
	within := ring(func(tap string) bool { return strings.HasPrefix(tap, "spine") })
	within.Remove(func(k verifytest.Sighting) bool {
		return k.Tap == "leaf1:p2" || k.Tap == "leaf1:p3" || k.Tap == "leaf2:p2" || k.Tap == "leaf2:p3"
	})
	judge(within, ranks.NewRailLocal(within.Workload), unclear,
		"without a plan the links between switches are not known")
}
