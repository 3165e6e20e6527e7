package runner

import (
	"fmt"
	"strings"
	"testing"

	"railbed/reporting"
	"railbed/testkit/hosttest"
)

// TestRepeatsAreReported lets five hosts send to one at line rate over a switch with a short buffer. The
// ranks' counts of retransmissions must equal those of the packets, and the run names the cause.
func TestRepeatsAreReported(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	r, _ := runAndHold(t, options(t, `
fabric:
  topology: single-switch
  params: {hosts: 6}
  switch: {kind: soft, buffer: 32KiB}
  links: {default: {rate: 100mbit, delay: 5us, mtu: 4200}}
steps:
  - capture: {at: ["h*"], file: run.pcapng}
  - workload: {name: incast, kind: gather, transport: rd, size: 768KiB, iterations: 1}
checks:
  - packets: {that: no rd packet is sent again without need}
`))
	got := r.Workloads[0].Repeats
	var sent, packets uint64
	if _, err := fmt.Sscanf(r.Checks[0].Summary, "of %d packets %d were retransmitted", &sent,
		&packets); err != nil {
		t.Fatalf("%q: %v", r.Checks[0].Summary, err)
	}
	if sum := got.Order + got.Loss + got.Trimming + got.Timer + got.Refused; sum != packets ||
		got.Loss+got.Timer < sum/2 || got.Trimming != 0 || got.Share() < 0.1 {
		t.Errorf("%+v, and %d packets were sent again: %s", got, packets, r.Checks[0].Summary)
	}
	var text strings.Builder
	if err := reporting.WriteText(&text, r, reporting.TextOptions{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	if want := "incast: " + got.Note() + "\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}
