package runner

import (
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestRoCEAtSharedNICs: the checks of ranks know the sender of each queue pair's packets, also where ranks or
// channels have one address.
func TestRoCEAtSharedNICs(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, `
fabric:
  topology: rail-optimized
  params: {servers: 2, rails: 2, spines: 1}
  switch: {kind: soft}
  links: {default: {rate: 50mbit}}
nodes: {default: {ranks: 4}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ranks, kind: all-to-all, transport: roce, size: 32KiB, iterations: 2}
  - workload: {name: channels, kind: all-reduce, ranks: [0, 4], transport: roce, channels: 4, size: 32KiB,
      iterations: 2}
checks:
  - packets: {bytes-per-rank: ranks}
  - packets: {bytes-per-rank: channels}
  - packets: {rank-nic: ranks}
  - packets: {rail-local: channels}
`))
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
}
