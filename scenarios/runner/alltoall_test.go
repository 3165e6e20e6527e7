package runner

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/pcapng"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// allToAlls are all-to-alls over both transports, the second one skewed, of elements that
// four ranks cannot share evenly.
const allToAlls = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: router}
  links: {default: {rate: 100mbit, mtu: 4200}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: plain, kind: all-to-all, algorithm: pairwise, size: 80012B, iterations: 1, warmup: 1}
  - workload: {name: rd, kind: all-to-all, transport: rd, size: 160004B, iterations: 1, warmup: 1, skew: 1}
checks:
  - workload: {name: plain, correct: true}
  - workload: {name: rd, correct: true}
  - packets: {bytes-per-rank: {workload: plain, formula: all-to-all, tolerance: 1%}}
  - packets: {bytes-per-rank: {workload: rd, formula: all-to-all, tolerance: 0%}}
  - packets: {rank-nic: plain}
  - packets: {rank-nic: rd}
  - packets: {conservation: "*"}
  - packets: {that: "every rd message is placed exactly once"}
`

// An all-to-all passes; the same recording without some of a rank's packets, with a rank
// elsewhere, or with numbers that the workers did not count, does not.
func TestChecksOfAllToAllsCanFail(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, allToAlls)
	_, held := runAndHold(t, o)
	for i, c := range rejudge(t, o, held) {
		if c.Verdict != verdict.Pass {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	altered := filepath.Join(t.TempDir(), "altered.pcapng")
	rewrite(t, filepath.Join(o.Out, "run.pcapng"), altered, func(nic bool, p *pcapng.Packet, rd wire.RD) int {
		if nic && p.Flags&pcapng.DirectionMask == pcapng.Outbound && rd.Base().PSN%8 == 0 {
			return 0
		}
		return 1
	})
	checks, err := judge.Checks(t.Context(), o.File, o.Plan, held, func(string) (io.ReadCloser, error) {
		return os.Open(altered)
	}, func(int64) {})
	if err != nil || checks[3].Verdict != verdict.Fail || checks[2].Verdict != verdict.Pass {
		t.Errorf("%v: without some of their packets ranks sent %+v, and the others %+v", err, checks[3],
			checks[2])
	}
	for name, c := range map[string]struct {
		change func(e *judge.Evidence)
		check  int
	}{
		"wrong elements": {func(e *judge.Evidence) { e.Workloads[1].Wrong = 1 }, 1},
		"an even formula": {func(e *judge.Evidence) {
			e.Workloads[1].Traffic.Ranks[1].Expected = 2 * 3 * 160004 / 4
		}, 3},
		"a rank's own part": {func(e *judge.Evidence) {
			e.Workloads[0].Traffic.Ranks[1].Expected = 2 * 80012
		}, 2},
		"a worker's count": {func(e *judge.Evidence) {
			reported := uint64(2 * 3 * 80012 / 4 * 103 / 100)
			e.Workloads[0].Traffic.Ranks[2].Reported = &reported
		}, 2},
		"another NIC":          {func(e *judge.Evidence) { e.Workloads[0].Traffic.Ranks[3].Node = "h0" }, 4},
		"another NIC, over rd": {func(e *judge.Evidence) { e.Workloads[1].Traffic.Ranks[3].Node = "h0" }, 5},
	} {
		e := *held
		e.Workloads = append([]judge.Finished(nil), held.Workloads...)
		for i := range e.Workloads {
			e.Workloads[i].Traffic.Ranks = append(held.Workloads[i].Traffic.Ranks[:0:0],
				held.Workloads[i].Traffic.Ranks...)
		}
		c.change(&e)
		if got := rejudge(t, o, &e)[c.check]; got.Verdict != verdict.Fail {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
