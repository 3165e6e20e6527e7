package runner

import (
	"slices"
	"strings"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/scenarios/runner/measure"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// What the host held sources up moves the verdict, since less was offered than
// the file says.
func TestHeldUpSourcesByNumbers(t *testing.T) {
	for share, want := range map[float64]string{0.029: report.Faithful, 0.031: report.Degraded,
		0.19: report.Degraded, 0.21: report.Overloaded} {
		f := &report.Fidelity{HeldUp: []report.HeldUp{{Traffic: "load", Node: "h1", Share: share}}}
		measure.Judge(f, nil)
		if f.Verdict != want || (want != report.Faithful) != strings.Contains(strings.Join(f.Reasons, "\n"),
			"traffic load: the host held h1 up for") {
			t.Errorf("%v of the time: %s %q, want %s", share, f.Verdict, f.Reasons, want)
		}
	}
}

// A rank that had no room for packets, because the host did not let it read, makes others
// send again: that is not what the fabric did.
func TestOverrunsByNumbers(t *testing.T) {
	over := judge.Finished{Name: "experts",
		Traffic: verify.Workload{Ranks: []verify.Rank{{Rank: 0, Node: "h0"},
			{Rank: 1, Node: "h1", Overruns: 40}}}}
	f := &report.Fidelity{Overruns: overruns([]judge.Finished{over})}
	measure.Judge(f, nil)
	if f.Verdict != report.Overloaded ||
		!slices.Equal(f.Reasons, []string{"workload experts: rank 1 at h1 had no room for 40 packets: the " +
			"host did not let it read them"}) {
		t.Errorf("%s %q", f.Verdict, f.Reasons)
	}
}

// A source that is stopped for half of its time was held up for that long. It is
// stopped once it sends: before, it cannot be held up.
func TestStoppedSourceIsHeldUp(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, `
fabric:
  topology: single-switch
  params: {hosts: 2}
  links: {default: {rate: 10mbit}}
steps:
  - traffic: {name: load, from: [h0], to: [h1], rate: 1mbit, for: 2s, background: true}
  - exec: {name: stop, nodes: [h0], command: [sh, -c,
	"until [ $(sed -n 's/ *eth0: *//p' /proc/self/net/dev | awk '{print $10}') -gt 9 ]; do sleep 0.02; done; p=$(grep -l ^railbed:traffi[c] /proc/[0-9]*/cmdline | cut -d/ -f3); kill -STOP $p; sleep 1; kill -CONT $p"]}
  - sleep: 1s
`))
	held := r.Fidelity.HeldUp
	if len(held) != 1 || held[0].Node != "h0" || held[0].Share < 0.4 || held[0].Share > 0.9 ||
		r.Fidelity.Verdict != report.Overloaded {
		t.Errorf("%s %s: held up: %+v, %s %q; want h0 for about half of its time, and overloaded", r.Verdict,
			r.Reason, held, r.Fidelity.Verdict, r.Fidelity.Reasons)
	}
}

// TestSourcesThatTheHostHeldUp: a check of throughput that fails proves nothing if the host held up a source.
func TestSourcesThatTheHostHeldUp(t *testing.T) {
	checks := []spec.Check{{Packets: &spec.PacketsCheck{Throughput: &spec.ThroughputCheck{}}},
		{Packets: &spec.PacketsCheck{Conservation: "*"}},
		{Packets: &spec.PacketsCheck{Throughput: &spec.ThroughputCheck{}}}}
	for share, want := range map[float64]verdict.Verdict{0.02: verdict.Fail, 0.18: verdict.Inconclusive} {
		r := &report.Report{Fidelity: &report.Fidelity{HeldUp: []report.HeldUp{{Node: "h3", Share: share}}},
			Checks: []report.Check{{Verdict: verdict.Fail}, {Verdict: verdict.Fail}, {Verdict: verdict.Pass}}}
		for i := range r.Checks {
			judge.ExcuseSources(&r.Checks[i], checks[i].Packets, r.Fidelity)
		}
		if r.Checks[0].Verdict != want || r.Checks[1].Verdict != verdict.Fail ||
			r.Checks[2].Verdict != verdict.Pass ||
			strings.Contains(r.Checks[0].Summary, "held up h3 for 18%") != (want == verdict.Inconclusive) {
			t.Errorf("%v: %+v", share, r.Checks)
		}
	}
}
