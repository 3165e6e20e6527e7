package fabricchecks

import (
	"testing"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// The paths of an engine are separate flows for a switch that hashes them, and one flow for a check
// of packets out of order.
func TestRDFlows(t *testing.T) {
	for uplinks, want := range map[int]verdict.Verdict{2: pass, 1: fail} {
		s := verifytest.NewScene(t)
		s.Uplink = func(flow, paths int) int { return flow % uplinks }
		s.RDRing(4)
		results, _ := s.Run(NewPathSpread(&spec.PathSpread{Switch: "leaf*", MinShare: units.Ratio{Num: 1,
			Den: 2}, Flows: onePath}))
		if results[0].Verdict != want {
			t.Errorf("%d uplinks used, want %s: %v", uplinks, want, results[0])
		}
	}
	for late, want := range map[uint32]verdict.Verdict{0: pass, 3: fail} {
		s := verifytest.NewScene(t)
		s.RDRing(4)
		for psn := range late {
			id, left := s.First(psn)
			s.Change(func(k verifytest.Sighting) bool {
				return k.ID == id && k.Time > left
			}, func(k *verifytest.Sighting) { k.Time += 400_000 })
		}
		results, _ := s.Run(NewReordering(&spec.ReorderingCheck{Share: "== 0%"}))
		if results[0].Verdict != want || results[0].Measured["late"] != float64(late) {
			t.Errorf("%d late packets, want %s: %v", late, want, results[0])
		}
	}
}
