package stacks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// TestHeldRank checks which rank stands out, from outputs of the script.
func TestHeldRank(t *testing.T) {
	ranks, _ := ranksOn("h0", "h1", "h2")
	process := func(pid int, state string, ranMs, waitedMs int) string {
		return fmt.Sprintf("%d %s %d000000 %d000000 77\n", pid, state, ranMs, waitedMs)
	}
	alike := map[string]string{"h0": process(7, "R", 500, 500), "h1": process(7, "S", 450, 500),
		"h2": process(8, "R", 400, 600)}
	for name, c := range map[string]struct {
		looks []map[string]string
		want  string
	}{
		"nothing is known": {nil, ""},
		"alike":            {[]map[string]string{alike}, ""},
		"one had little": {[]map[string]string{alike, {"h1": process(7, "R", 500, 4500)}},
			"rank 1 (h1) was held up: it ran for 10% of the time in which it was runnable, others " +
				"for at least 40%"},
		"one had too little": {[]map[string]string{alike,
			{"h1": process(7, "R", 10, 150) + process(9, "R", 160, 1)}}, ""},
		"by its threads": {[]map[string]string{alike,
			{"h1": "7 R 100000000 400000000 1 100000000 1400000000 5\n"}},
			"rank 1 (h1) was held up: it ran for 10% of"},
		"others want none": {[]map[string]string{{"h2": process(7, "R", 500, 700)}},
			"rank 2 (h2) was held up: it ran for 42% of the time in which it was runnable, others " +
				"for at least 100%"},
		"two had little": {[]map[string]string{{"h0": process(1, "R", 100, 900),
			"h1": process(1, "R", 100, 900), "h2": process(8, "R", 500, 0)}}, ""},
		"one was stopped": {[]map[string]string{alike,
			{"h1": process(7, "R", 500, 4500), "h2": process(8, "T", 400, 600)}, alike},
			"rank 2 (h2) was held up: it was stopped in 1 of 3 samples"},
		"words of others": {[]map[string]string{{"h0": "x\nsh: 1: x\n7\n7 R 5\n", "h1": ""}}, ""},
	} {
		a := newAccount()
		for _, printed := range c.looks {
			a.read(printed)
		}
		got := ""
		if held := a.held(ranks); held != nil {
			got = held.String()
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestHeldByTheKernel has processes of three nodes run at full speed, of which one has a fiftieth of
// a processor, and then one is stopped. Beside much other work the others have a tenth each.
func TestHeldByTheKernel(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	p := plantest.Compile(t, fmt.Sprintf("name: stacks-held-%d\nfabric: {topology: single-switch, params: "+
		"{hosts: 3}}\nnodes: {h1: {cpu: 0.02}}\n", os.Getpid()))
	tb, err := testbed.Up(t.Context(), p, testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	job := Job{Step: &spec.Stack{Name: "held"}, Plan: p, Log: func(string) (io.Writer, io.Writer, error) {
		return io.Discard, io.Discard, nil
	}}
	var nodes []*plan.Node
	for i := range p.Nodes {
		nodes = append(nodes, &p.Nodes[i])
	}
	job.Nodes = nodes
	r := newRun(t.Context(), tb, job, nil)
	for _, n := range nodes {
		cmd, err := r.command(r.ctx, n.Name, "sh", "-c", "while :; do :; done")
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			r.kill(nil) // also where the test failed
			_ = cmd.Wait()
		}()
	}
	until := func(want string) {
		hosttest.Eventually(t, fmt.Sprintf("the text %q", want), func() error {
			if r.readKernels(r.ctx); !strings.Contains(r.heldText(), want) {
				return errors.New(r.heldText())
			}
			return nil
		})
	}
	until("rank 1 (h1) was held up: it ran for")
	if _, err := r.processes(r.ctx, `[ "$(hostname)" != h2 ] || kill -STOP $1`); err != nil {
		t.Error(err)
	}
	until("rank 2 (h2) was held up: it was stopped")
	if err := r.close(); err != nil {
		t.Error(err)
	}
}
