package runner

import (
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestRanksHaveNames: another program of the node sees the rank's name, as top does.
func TestRanksHaveNames(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r := runAll(t, t.Context(), options(t, `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: router}
  links: {default: {rate: 100mbit}}
steps:
  - exec: {nodes: [h1], background: true, command: [sh, -c,
      "until grep -qsx rb:h1:rank1 /proc/[0-9]*/comm; do sleep 0.01; done; touch /tmp/seen"]}
  - workload: {name: ar, kind: all-reduce, transport: tcp, size: 1MiB, iterations: 50}
  - exec: {nodes: [h1], command: [test, -e, /tmp/seen]}
checks:
  - workload: {name: ar, correct: true}
`))
	want(t, r, verdict.Pass, verdict.Pass)
}
