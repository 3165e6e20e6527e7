package runner

import (
	"fmt"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestBypass runs an all-reduce past the kernels of the nodes. Every check of its packets holds, at the
// NICs too, where no packet socket sees them. The kernels' counters show that they passed none of it.
func TestBypass(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for transport, check := range map[string]string{
		"rd":   "that: every rd message is placed exactly once",
		"roce": "roce: {rule: writes}",
	} {
		t.Run(transport, func(t *testing.T) { runBypassing(t, transport, check) })
	}
}

func runBypassing(t *testing.T, transport, check string) {
	o := options(t, fmt.Sprintf(`
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft, load-balance: flow}
  links: {default: {rate: 50mbit, mtu: 4200}}
nodes: {default: {nic-path: bypass}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: w, kind: all-reduce, transport: %s, size: 256KiB, iterations: 2, warmup: 0}
  - exec: {nodes: ["h*"], command: [sh, -c, "test $(cat /sys/class/net/eth0/statistics/tx_packets) -lt 50"]}
checks:
  - workload: {name: w, correct: true}
  - packets: {bytes-per-rank: w}
  - packets: {rank-nic: w}
  - packets: {%s}
  - packets: {conservation: "*"}
`, transport, check))
	report, _ := runAndHold(t, o)
	if report.Testbed.Bypass != 4 {
		t.Errorf("the report counts %d nodes with bypass, want 4", report.Testbed.Bypass)
	}
	for _, c := range report.Checks {
		if c.Verdict != verdict.Pass {
			t.Errorf("%s: %s: %s", c.Name, c.Verdict, c.Summary)
		}
	}
	for _, s := range report.Steps {
		if s.State != "passed" {
			t.Errorf("%s: %s %v", s.Name, s.State, s)
		}
	}
}
