package runner

import (
	"slices"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/workloads/stacks"
)

// TestWhatRanBesideAStack checks the steps reported to have run at the same time as a stack:
// workloads and traffic by their packets, and programs in its nodes by their names. Steps that ran
// before, after or elsewhere are not reported.
func TestWhatRanBesideAStack(t *testing.T) {
	const file = `
fabric:
  topology: single-switch
  params: {hosts: 4}
steps:
  - traffic: {name: first, from: [h2], to: [h3], rate: 1mbit, size: 200B, for: 1s, background: true}
  - workload: {name: ar, kind: all-reduce, transport: tcp, size: 4KiB, iterations: 1, background: true}
  - traffic: {name: second, from: [h0], to: [h1], rate: 1mbit, size: 200B, for: 1s, background: true}
  - exec: {name: here, nodes: [h1], command: [sleep, "1"], background: true}
  - exec: {name: elsewhere, nodes: [h3], command: [sleep, "1"], background: true}
  - stack: {name: cache, kind: redis, nodes: [h0, h1]}
  - exec: {name: later, nodes: [h0], command: [sleep, "1"]}
`
	o := options(t, file)
	ran := func(from, to float64) report.Step {
		return report.Step{State: report.Passed, Start: from, End: to}
	}
	prepared, err := prepare(&o)
	if err != nil {
		t.Fatal(err)
	}
	e := judge.Evidence{
		Workloads: []judge.Finished{{Name: "ar", Traffic: verify.Workload{Name: "ar"}}},
		Stacks: []stacks.Result{{Stack: report.Stack{Name: "cache"},
			Crossing: verify.Crossing{Ranks: []verify.CrossingRank{{Node: "h0"}, {Node: "h1"}}}}},
		Steps: []report.Step{ran(0, 1), ran(0, 3), ran(0, 3), ran(0, 9), ran(0, 9), ran(2, 4), ran(4, 5)},
	}
	c, err := crossing(&e, o.Plan, prepared, "cache")
	if err != nil || len(c.Others) != 1 || c.Others[0].Name != "ar" ||
		!slices.Equal(c.Datagrams, []uint16{sinkPort + 1}) || !slices.Equal(c.Beside, []string{"exec here"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := crossing(&e, o.Plan, prepared, "cash"); err == nil {
		t.Error("there is no such stack")
	}
}
