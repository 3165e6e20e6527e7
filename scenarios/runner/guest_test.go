package runner

import (
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

// TestWorkloadsInAGuest has one of three ranks in a virtual machine, whose kernel is
// another one than the host's: Linux 6.1 cuts no datagrams for a NIC without checksums.
func TestWorkloadsInAGuest(t *testing.T) {
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
}
