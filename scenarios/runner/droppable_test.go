package runner

import (
	"strings"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// rdDroppable is a ring over spines that lose packets, which may leave out parts of
// its sums.
const rdDroppable = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, mtu: 4200}, host: {rate: 50mbit}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - link: {where: leaf1--spine1, set: {loss: 1%}}
  - link: {where: leaf1--spine2, set: {loss: 1%}}
  - workload: {name: ar, kind: all-reduce, transport: rd, size: 4MiB, iterations: 1, rd: {droppable: 3%}}
  - training: {name: job, model: {layers: 1, hidden: 256, sequence: 16, dp: 4, zero: 1, tflops: 1}, iterations: 1, transport: rd, rd: {droppable: 8%}}
  - messages: {name: caches, cache: {prefill: 1, requests: 3, per-second: 1000, layers: 4, layer-time: 1ms, layer-bytes: 512KiB}, transport: rd, rd: {droppable: 3%}}
checks:
  - workload: {name: ar, correct: true}
  - packets: {bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 3%}}
  - packets: {that: "every rd message is placed exactly once"}
  - workload: {name: job, correct: true}
  - workload: {name: caches, correct: true}
  - packets: {bytes-per-rank: {workload: job, formula: training, tolerance: 8%}}
  - packets: {bytes-per-rank: {workload: caches, formula: messages, tolerance: 3%}}
`

// TestLeftOutIsTold checks that the report has the exact bytes that were left out. The checks must
// fail for other counts than the packets show, for more bytes than are allowed, and for elements
// that are wrong without these bytes.
func TestLeftOutIsTold(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, rdDroppable)
	_, held := runAndHold(t, o)
	checks := rejudge(t, o, held)
	for i, c := range checks {
		if c.Verdict != verdict.Pass {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	for i, w := range held.Workloads {
		if w.MayMiss == 0 || w.Missing == 0 {
			t.Errorf("workload %d lost %d bytes of %d that may be left out", i, w.Missing, w.MayMiss)
		}
	}
	missing := held.Workloads[0].Missing
	if missing == 0 || !strings.Contains(checks[0].Summary, "right but for") ||
		!strings.Contains(checks[2].Summary, "with holes") {
		t.Errorf("%d bytes were left out: %s; %s", missing, checks[0].Summary, checks[2].Summary)
	}
	for name, c := range map[string]struct {
		change   func(w *judge.Finished)
		workload int
		check    int
		says     string
	}{
		"a rank reports one byte less": {func(w *judge.Finished) {
			*w.Traffic.Ranks[1].Missing--
		}, 0, 1, "never came; it reported"},
		"a rank reports one byte more": {func(w *judge.Finished) {
			*w.Traffic.Ranks[2].Missing++
		}, 0, 1, "never came; it reported"},
		"more than may be left out": {func(w *judge.Finished) {
			w.Missing = w.MayMiss + 1
		}, 0, 0, "of partial sums are missing, and at most"},
		"an element is wrong besides": {func(w *judge.Finished) { w.Wrong = 1 }, 0, 0,
			"1 elements are wrong"},
		"a rank of a job reports one byte more": {func(w *judge.Finished) {
			*w.Traffic.Ranks[2].Missing++
		}, 1, 5, "never came; it reported"},
		"a job leaves out more": {func(w *judge.Finished) {
			w.Missing = w.MayMiss + 1
		}, 1, 3, "of partial sums are missing, and at most"},
		"a rank misses one byte more": {func(w *judge.Finished) {
			*w.Traffic.Ranks[1].Missing++
		}, 2, 6, "never came; it reported"},
		"messages lack more": {func(w *judge.Finished) {
			w.Missing = w.MayMiss + 1
		}, 2, 4, "of messages are missing, and at most"},
	} {
		e := *held
		e.Workloads = append(e.Workloads[:0:0], held.Workloads...)
		w := held.Workloads[c.workload]
		w.Traffic.Ranks = append(w.Traffic.Ranks[:0:0], w.Traffic.Ranks...)
		for i := range w.Traffic.Ranks {
			own := *w.Traffic.Ranks[i].Missing
			w.Traffic.Ranks[i].Missing = &own
		}
		c.change(&w)
		e.Workloads[c.workload] = w
		if got := rejudge(t, o, &e)[c.check]; got.Verdict != verdict.Fail ||
			!strings.Contains(strings.Join(append(got.Details, got.Summary), "\n"), c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
