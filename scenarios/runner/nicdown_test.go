package runner

import (
	"fmt"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
)

// The only step with a command in the node of a NIC, in the time in which the NIC went down, took it down.
func TestActsOfNICsThatGoDown(t *testing.T) {
	const text = "name: x\nfabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: bridge}}\n" +
		"steps:\n- exec: {name: a, nodes: [h1], command: [x]}\n" +
		"- exec: {name: b, nodes: [h0], command: [x]}\n"
	file, err := spec.Decode("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	f := &report.Fidelity{Downs: []report.NICDown{{NIC: "h1:eth0", Spans: []report.DownSpan{
		{From: at(1), To: at(4)}, {From: at(4), To: at(5)}, {From: at(5)}}}}}
	steps := []step{&execStep{spec: file.Steps[0].Exec}, &execStep{spec: file.Steps[1].Exec}}
	records := []report.Step{{Name: "exec a", End: 3}, {Name: "exec b", End: 9}}
	got := ""
	for _, a := range nicActs(plantest.Compile(t, text), f, steps, records, clock.At(start, 1)) {
		to := "the end"
		if !a.To.IsZero() {
			to = a.To.Sub(start).String()
		}
		got += fmt.Sprintf("%s %s %v %v from %v to %s by %q\n", a.Kind, a.NIC, a.Links, a.Nodes,
			a.From.Sub(start), to, a.Step)
	}
	const want = `nic-down h1:eth0 [h1--leaf1] [h1] from 1s to 4s by "exec a"
nic-down h1:eth0 [h1--leaf1] [h1] from 4s to 5s by ""
nic-down h1:eth0 [h1--leaf1] [h1] from 5s to the end by ""
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
