package runner

import (
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
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
  - workload: {name: d, kind: all-reduce, transport: tcp, dscp: 18, ip: 6, size: 64KiB, iterations: 1}
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
