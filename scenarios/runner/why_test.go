package runner

import (
	"slices"
	"strings"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

// TestWhyNamesTheCause runs scenarios with a known fault, and reads their results as railbed why does. The
// first cause is the fault. A machine that could not carry the scenario proves nothing.
func TestWhyNamesTheCause(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for _, test := range []struct {
		path, part, where, what string
		unfinished              bool
	}{
		{"../debugging/incast-tail.yaml", "recover", "leaf1:", "dropped packets: tail", false},
		{"../debugging/grey-spine.yaml", "recover", "spine1:", "dropped packets: nth", false},
		{"../pfc-storm.yaml", "recover", ":eth0",
			"nic-overrun; flow control stopped the port: h2:eth0, a NIC, " +
				"asked for it first, and leaf2:p2, spine1:p0, leaf1:", true},
	} {
		t.Run(strings.TrimPrefix(test.path, "../"), func(t *testing.T) {
			o := load(t, test.path)
			if r := runAll(t, t.Context(), o); r.Verdict != verdict.Pass {
				if r.Verdict == verdict.Overloaded || r.Verdict == verdict.Inconclusive {
					t.Skipf("cannot run here: %s: %s", r.Verdict, r.Reason)
				}
				want(t, r, verdict.Pass)
			}
			run, err := bundle.Open(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			recording, err := follow.ReadRun(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			answers := recording.Why(recording.Select(follow.Selection{}))
			if len(answers) != 1 {
				t.Fatalf("answers %+v", answers)
			}
			// On a busy machine programs and the emulator are late, too.
			fabric := slices.DeleteFunc(answers[0].Causes, func(c follow.Cause) bool {
				return c.Part == follow.Host.String() || c.Part == follow.Emulator.String()
			})
			if len(fabric) == 0 {
				t.Fatalf("no cause in the fabric: %+v", answers[0])
			}
			c := fabric[0]
			if c.Part != test.part || !strings.Contains(c.What, test.what) ||
				c.Unfinished > 0 != test.unfinished ||
				!slices.ContainsFunc(c.Where, func(at string) bool {
					return strings.Contains(at,
						test.where)
				}) {
				t.Errorf("the first cause is %+v", c)
			}
			shown := recording.PacketOf(c.Record)
			if shown < 0 || recording.Packets[shown].Dropped == "" {
				t.Errorf("record %d is not of a packet that was dropped", c.Record)
			}
		})
	}
}
