package runner

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// bypassFault is a fault of h1 or of rank 1 while ranks 0 and 1 run a collective past the kernel.
type bypassFault struct {
	name, transport, fault string
	// words are in the error of the collective, and does describes the fault there. The collective ends
	// correctly if words is empty.
	words, does string
	root        bool
}

var bypassFaults = []bypassFault{
	{name: "crash of a node", transport: "rd", fault: "where: h1, crash: true", words: "rank 1 on h1",
		does: "h1 crashed"},
	{name: "crash of a node, roce", transport: "roce", fault: "where: h1, crash: true", words: "rank 1 on h1",
		does: "h1 crashed"},
	{name: "crash of a rank", transport: "rd", fault: "rank: 1, crash: true", words: "rank 1 on h1",
		does: "rank 1 in h1 crashed"},
	{name: "crash of a program", transport: "roce",
		fault: `where: h1, program: "railbed:worker", crash: true`, words: "rank 1 on h1",
		does: "railbed:worker in h1 crashed"},
	{name: "hang of a node", transport: "rd", fault: "where: h1, hang: true", words: "rank 1 on h1",
		does: "h1 hung"},
	{name: "hang of a node, roce", transport: "roce", fault: "where: h1, hang: true", words: "rank 1 on h1",
		does: "h1 hung"},
	{name: "hang for a while", transport: "rd", fault: "where: h1, hang: true, for: 500ms"},
	{name: "hang of a rank for a while", transport: "roce", fault: "rank: 1, hang: true, for: 500ms"},
	{name: "slow node", transport: "rd", fault: "where: h1, slow: {cpu: 0.05}, for: 1s", root: true},
	{name: "slow node, roce", transport: "roce", fault: "where: h1, slow: {cpu: 0.05}, for: 1s", root: true},
}

// TestBypassFaults kills, stops and starves nodes and ranks while a collective runs past the kernel. The
// collective ends within the bound, and its error names the rank and the fault. Ranks on other nodes are
// correct meanwhile and afterwards. The NICs then keep no memory of the ranks that ended.
func TestBypassFaults(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for i, c := range bypassFaults {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 && !hosttest.Sampled(t, i) {
				t.Skip("not in this sample")
			}
			if c.root {
				hosttest.Need(t, hosttest.Root)
			}
			c.test(t)
		})
	}
}

func (c *bypassFault) test(t *testing.T) {
	const neighbours = "kind: all-reduce, transport: %s, ranks: [2, 3], size: 64KiB, iterations: 40"
	hit := fmt.Sprintf("{workload: {name: hit, kind: all-reduce, transport: %s, ranks: [0, 1], "+
		"size: 256KiB, iterations: 100000, background: true}, fails: true}", c.transport)
	check := ""
	if c.words == "" {
		hit = strings.Replace(strings.Replace(hit, "100000", "60", 1), ", fails: true", "", 1)
		check = "  - workload: {name: hit, correct: true}\n"
	}
	beside := fmt.Sprintf(neighbours, c.transport)
	o := options(t, fmt.Sprintf(`
fabric:
  topology: single-switch
  params: {hosts: 4}
  switch: {kind: soft}
  links: {default: {rate: 50mbit, mtu: 4200}}
nodes: {default: {nic-path: bypass}}
steps:
  - %s
  - workload: {name: beside, %s, background: true}
  - when: '100th udp && railbed.node == "h1"'
    fault: {name: f, %s}
  - wait: [hit, beside]
  - workload: {name: afterwards, %s}
  - exec: {name: last, nodes: [h2], command: [sleep, "0.5"]}
checks:
  - workload: {name: beside, correct: true}
  - workload: {name: afterwards, correct: true}
%s`, hit, beside, c.fault, beside, check))
	left := make(chan error, 1)
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "[6/6]") && len(left) == 0 {
			left <- noQueues(t.Context(), o.Plan)
		}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	job, fault := r.Steps[0], r.Steps[2]
	took := time.Duration((job.End - fault.Start) * float64(time.Second))
	if job.State == report.Skipped || fault.State == report.Skipped || took > crashBound {
		t.Errorf("%s %v after the fault, which %s: %s", job.State, took, fault.State, r.Reason)
	}
	if c.words != "" && (!strings.Contains(job.Error, c.words) ||
		!strings.HasSuffix(job.Error, "; fault f: "+c.does)) {
		t.Errorf("%q, want %q and the fault", job.Error, c.words)
	}
	for _, check := range r.Checks {
		if check.Verdict != verdict.Pass {
			t.Errorf("%s: %s: %s", check.Name, check.Verdict, check.Summary)
		}
	}
	if r.Verdict != verdict.Pass && !tooBusy(r) {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	select {
	case err := <-left:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("the run did not come to its last step: %s", r.Reason)
	}
}

// noQueues returns an error if the process of the switches maps memory of programs, none of which runs.
func noQueues(ctx context.Context, p *plan.Plan) error {
	tb, err := testbed.Open(ctx, p.Name)
	if err != nil {
		return err
	}
	defer tb.Close()
	state, err := tb.Inspect(ctx)
	if err != nil {
		return err
	}
	pid, err := childOf(state.PID, "softswitch")
	if err != nil {
		return err
	}
	for end := time.Now().Add(5 * time.Second); ; {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			return err
		}
		count := strings.Count(string(maps), "/memfd:railbed-nic")
		if count == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the switches map the memory of %d pairs of queues", count)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
