package runner

import (
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// dualToR has two jobs whose ranks have two NICs each. A ToR dies while they run, and stays dead until they
// have ended.
const dualToR = `
fabric:
  topology: hpn
  params: {segments: 1, servers: 3, rails: 2, aggs: 1}
  switch: {kind: soft}
  links: {default: {rate: 50mbit}}
nodes: {default: {ranks: 2}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: datagrams, kind: all-reduce, transport: rd, size: 64KiB, iterations: 20, timeout: 30s,
      background: true}
  - workload: {name: pairs, kind: all-gather, ranks: [0, 2, 4], transport: roce, size: 64KiB,
      iterations: 20, timeout: 30s}
  - wait: [datagrams]
  - when: 300th udp
    fault: {name: dead, where: tor-s1r1a, reboot: true, for: 20s}
checks:
  - workload: {name: datagrams, correct: true}
  - workload: {name: pairs, correct: true}
  - packets: {bytes-per-rank: datagrams}
  - packets: {rank-nic: datagrams}
  - packets: {that: "every rd message is placed exactly once"}
`

// TestDualToR: ranks follow the rails, send by both NICs of a rail, and outlive a ToR. The datagrams cross
// rails. The queue pairs stay on a rail, as their flows cannot leave the plane of a ToR that is far away.
func TestDualToR(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, dualToR)
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	states := map[string]report.Step{}
	for _, step := range r.Steps {
		states[step.Name] = step
	}
	dead := states["dead"]
	for _, name := range []string{"datagrams", "pairs"} {
		if job := states[name]; job.End < dead.Start || job.End > dead.Start+20 {
			t.Errorf("%s ran from %v to %v, and the ToR was dead from %v for 20 s", name, job.Start, job.End,
				dead.Start)
		}
	}
	used := map[string]bool{}
	for _, l := range r.Fidelity.Links {
		used[l.From] = l.Bytes > 0
	}
	for _, nic := range []string{"h0:eth0", "h0:eth1", "h0:eth2", "h0:eth3"} {
		if !used[nic] {
			t.Errorf("%s sent nothing", nic)
		}
	}
}
