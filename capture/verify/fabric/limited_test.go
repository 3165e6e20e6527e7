package fabric

import (
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/verifytest"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// between limits a check to a time of a scene, in nanoseconds from its start, or to the time outside of it.
func between(from, to int64, outside bool, k evidence.Check) evidence.Check {
	title := "during f"
	if outside {
		title = "outside f"
	}
	from, to = verifytest.Start+from, verifytest.Start+to
	return evidence.Limited(k, evidence.NewTimes(title, outside,
		[]evidence.Active{{Begun: from, From: from, To: to, Ended: to}}, ""))
}

// The packets that faults dropped at ports without a tap are counted for the whole run.
func TestDropsByFaultsInATime(t *testing.T) {
	for _, c := range []struct {
		count string
		times string
		want  verdict.Verdict
		says  string
	}{
		{"== 0", "", fail, "packets dropped: 50, want == 0"},
		{">= 1", "", pass, ""},
		{"== 0", "outside", unclear, "faults dropped another 50 packets"},
		{">= 1", "during", unclear, "faults dropped another 50 packets"},
		{"<= 60", "during", unclear, "faults dropped another 50 packets"},
	} {
		s := verifytest.NewScene(t)
		s.Ring(4)
		s.Harm = map[string]evidence.Harm{"leaf1:p0": {Dropped: 50}}
		k := NewDrops(&spec.DropsCheck{Reason: byFault, Count: c.count})
		if c.times != "" {
			k = between(1_000_000, 2_000_000, c.times == "outside", k)
		}
		verifytest.Judge(t, s, k, c.want, c.says)
	}
}
