package runner

import (
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestLimitsOfARun: a fault drops the requests of ping for a time. Lost requests are found in the time of the
// fault, and none outside of it. A fault that never begins decides nothing.
func TestLimitsOfARun(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const lost = `rule: {never: 'railbed.verdict == "drop"'}`
	o := options(t, faulted(`
  - exec: {name: before, nodes: [h0], command: [ping, "-4", -c, "4", -i, "0.05", h1]}
  - fault: {name: lost, where: "h1--leaf1 b-to-a", match: icmp, drop: {}, for: 2s}
  - exec: {name: faulty, nodes: [h0], command: [sh, -c, "ping -4 -c 4 -i 0.05 -w 1 h1; true"]}
  - sleep: 3s
`, lost+`, during: lost}
  - packets: {`+lost+`, outside: lost}
  - packets: {`+lost+`, during: before}
  - packets: {rule: {count: icmp, is: ">= 8", at: h0}, outside: faulty`))
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Fail, verdict.Fail, verdict.Pass, verdict.Pass, verdict.Pass)
}
