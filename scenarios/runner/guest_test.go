package runner

import (
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestWorkloadsInAGuest has one of three ranks in a virtual machine, whose kernel is
// another one than the host's: Linux 6.1 cuts no datagrams for a NIC without checksums. Then faults make the
// guest's clock wrong for a while.
func TestWorkloadsInAGuest(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.VM, hosttest.Tap)
	r := runAll(t, t.Context(), options(t, `
fabric:
  topology: single-switch
  params: {hosts: 3}
  links: {default: {rate: 20mbit}}
nodes:
  h0: {runtime: vm}
steps:
  - workload: {name: a, kind: all-reduce, algorithm: ring, transport: tcp, size: 48KiB}
  - workload: {name: b, kind: all-reduce, algorithm: ring, transport: rd, size: 48KiB}
  - exec: {name: clock, nodes: [h0], command: [python3, -c, "`+strings.ReplaceAll(clockScript, "\n", "\\n")+`"],
      background: true, timeout: 2m}
  - exec: {name: ready, nodes: [h0], command: [sh, -c, '`+untilThere+`', sh, /tmp/ready], timeout: 1m}
  - fault: {name: jump, where: h0, clock: {jump: -1h}, for: 500ms}
  - exec: {name: jumped, nodes: [h0], command: [sh, -c, '`+untilThere+`', sh, /tmp/back], timeout: 1m}
  - fault: {name: drift, where: h0, clock: {drift: 100000ppm}, for: 1s}
  - exec: {name: drifted, nodes: [h0], command: [sh, -c, '`+untilThere+`', sh, /tmp/right], timeout: 1m}
checks:
  - workload: {name: a, correct: true}
  - workload: {name: b, correct: true}
`))
	for _, check := range r.Checks { // a busy host may have been late; that is not the point
		if check.Verdict != verdict.Pass {
			t.Errorf("%s: %s", check.Name, check.Verdict)
		}
	}
	if len(r.Checks) != 2 {
		t.Errorf("%d checks: %s", len(r.Checks), r.Reason)
	}
	for _, step := range r.Steps {
		if step.State != report.Passed {
			t.Errorf("%s %s: %s", step.Name, step.State, step.Error)
		}
	}
	for _, f := range r.Faults {
		if f.Matched != 1 || f.Hit != 1 {
			t.Errorf("%+v", f)
		}
	}
}

// clockScript waits until the wall clock has jumped back by an hour, until it is right again, until it has
// gained 50 ms, and until it is right once more. It compares the clock with a clock that no fault changes,
// and makes a file at each of these times.
const clockScript = `import time
def ahead(): return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
right = max(ahead() for _ in range(5))
phases = (('ready', lambda a: a < -3599), ('wrong', lambda a: abs(a) < .01),
    ('back', lambda a: a > .05), ('fast', lambda a: abs(a) < .01))
for name, seen in phases:
    open('/tmp/' + name, 'w')
    while not seen(ahead() - right): time.sleep(.01)
open('/tmp/right', 'w')
`

// untilThere is a script of a shell that ends when a file exists.
const untilThere = `until [ -e $1 ]; do sleep 0.05; done`
