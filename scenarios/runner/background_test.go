package runner

import (
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestWorkloadsOfTwoClasses: workloads over each transport send packets of their own DSCP, by IPv4 and IPv6,
// while a stack runs in the background.
func TestWorkloadsOfTwoClasses(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.IPerf3)
	r := runAll(t, t.Context(), options(t, `
fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}, links: {default: {rate: 200mbit}}}
nodes: {default: {ranks: 1}}
steps:
  - capture: {at: [nics], file: run.pcapng}
  - stack: {name: flood, kind: iperf3, size: 1MiB, background: true}
  - workload: {name: a, kind: all-reduce, transport: tcp, dscp: 10, size: 64KiB, iterations: 1}
  - workload: {name: b, kind: all-reduce, transport: rd, dscp: 12, size: 64KiB, iterations: 1}
  - workload: {name: c, kind: all-reduce, transport: roce, dscp: 14, size: 64KiB, iterations: 1}
  - workload: {name: d, kind: all-reduce, dscp: 18, ip: 6, size: 64KiB, iterations: 1}
  - wait: [flood]
checks:
  - packets: {rule: {name: a, always: ip.dsfield.dscp == 10, workload: a, where: tcp.len > 0, at: nics}}
  - packets: {rule: {name: b, always: ip.dsfield.dscp == 12, workload: b, where: rd.type == 1, at: nics}}
  - packets: {rule: {name: c, always: ip.dsfield.dscp == 14, workload: c, where: infiniband.reth, at: nics}}
  - packets: {rule: {name: d, always: ipv6.tclass.dscp == 18, workload: d, where: tcp.len > 0, at: nics}}
`))
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	if len(r.Stacks) != 1 || r.Steps[1].End < r.Steps[2].Start {
		t.Errorf("%+v, %+v", r.Stacks, r.Steps)
	}
}

// TestWorkloadsOnOwnRanks: jobs on different ranks share a fabric at the same time. The checks, the report
// and faults find the ranks of each job.
func TestWorkloadsOnOwnRanks(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, `
fabric: {topology: single-switch, params: {hosts: 6}, switch: {kind: soft}, links: {default: {rate: 200mbit}}}
steps:
  - capture: {at: [nics], file: run.pcapng}
  - workload: {name: a, kind: all-reduce, transport: rd, ranks: [4, 0], size: 64KiB, background: true}
  - workload: {name: b, kind: all-to-all, transport: roce, ranks: [3, 1, 2], size: 96KiB, background: true}
  - messages: {name: c, ranks: [5, 2], closed: {count: 20, sizes: web-search, scale: 1/100}, background: true}
  - wait: [a, b, c]
  - {workload: {name: d, kind: all-reduce, ranks: [5, 3], size: 4MiB, iterations: 400, background: true}, fails: true}
  - sleep: 100ms
  - fault: {rank: 3, crash: true}
checks:
  - workload: {name: a, correct: true}
  - workload: {name: b, correct: true}
  - packets: {bytes-per-rank: a}
  - packets: {bytes-per-rank: b}
  - packets: {rule: {name: a, never: 'railbed.node in {"h1", "h2", "h3", "h5"}', workload: a, at: nics}}
`))
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	if len(r.Workloads) != 2 || r.Workloads[0].Ranks != 2 || r.Workloads[1].Ranks != 3 {
		t.Errorf("%+v", r.Workloads)
	}
	if len(r.Faults) != 1 || r.Faults[0].Hit != 1 || !strings.Contains(r.Steps[5].Error, "h3") {
		t.Errorf("%+v, %+v", r.Faults, r.Steps)
	}
}
