package fabricchecks

import (
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// TestChecksOfAWorkload holds that a check of one workload looks at its packets alone.
func TestChecksOfAWorkload(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	of := func(node int) *evidence.Workload {
		n := &s.Plan.Nodes[node]
		return &evidence.Workload{Name: n.Name,
			Ranks: []evidence.Rank{{Node: n.Name, NIC: "eth0", Addr: verifytest.Loopback(n), Port: 7000}}}
	}
	s.Cut(s.Plan.Switch("leaf1").Soft.Trim.DSCP)
	var cut, whole int // of which node's packets every one is cut, and of which none
	if s.Packet("h1:eth0", true)%2 == 0 {
		cut = 1
	} else {
		whole = 1
	}
	s.Change(func(k verifytest.Sighting) bool {
		return k.Comment != "" && k.Queue == 4 && k.ID%2 == 0
	}, func(k *verifytest.Sighting) { k.Comment = "railbed depth=50000 late=0ns" })
	deep, flat := &spec.QueueDepthCheck{Max: ">= 40KB"}, &spec.QueueDepthCheck{Max: "<= 1KB"}
	two, none := &spec.TrimsCheck{Count: "== 200"}, &spec.TrimsCheck{Count: "== 0"}
	results, _ := s.Run(
		NewTrims(two, of(cut)), NewTrims(none, of(whole)), NewTrims(two, nil),
		NewTrims(two, of(whole)), NewTrims(none, of(cut)),
		NewQueueDepth(deep, of(cut)), NewQueueDepth(flat, of(whole)),
		NewQueueDepth(flat, nil), NewQueueDepth(flat, of(3)),
	)
	for i, want := range []verdict.Verdict{pass, pass, pass, fail, fail, pass, pass, fail, unclear} {
		if results[i].Verdict != want {
			t.Errorf("check %d, want %s: %v", i, want, results[i])
		}
	}
	if name := results[0].Name; name != "trims "+s.Plan.Nodes[cut].Name {
		t.Errorf("the check is called %q", name)
	}
}
