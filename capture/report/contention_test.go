package report

import (
	"strings"
	"testing"

	"railbed/internal/usage"
)

// TestContention: programs lack processors because those of one node want most of them, because one node has
// few, or because the machine is busy with other programs. A limit of CPUs is no lack.
func TestContention(t *testing.T) {
	node := func(name string, ran, waited, throttled float64) NodeKernel {
		return NodeKernel{Node: name, Ran: ran, Waited: waited, Throttled: throttled}
	}
	const greedy = "programs of h2 wanted 36 s of processor time, and those of no other node more than 6 s"
	for what, test := range map[string]struct {
		nodes []NodeKernel
		want  string
		of    [2]string // of h2 and h1
	}{
		"greedy": {[]NodeKernel{node("h2", 15, 21, 0), node("h0", 1, 4, 0), node("h1", 1, 5, 0)},
			"programs of h0, h1, h2 had no processor for 58% to 83% of the time that they wanted " +
				"one; " + greedy,
			[2]string{greedy, greedy}},
		"starved": {[]NodeKernel{node("h2", 2, 8, 0), node("h0", 8, 1, 0), node("h1", 8, 1, 0)},
			"programs of h2 had no processor for 80% of the time that they wanted one; those of other " +
				"nodes had none for at most 11%",
			[2]string{"its programs had no processor for 80% of the time that they wanted one, and those " +
				"of other nodes for at most 11%", ""}},
		"machine": {[]NodeKernel{node("h2", 1, 9, 0), node("h0", 1, 9, 0), node("h1", 1, 9, 0)},
			"programs of h0, h1, h2 had no processor for 90% of the time that they wanted one",
			[2]string{}},
		"limited threads": {[]NodeKernel{node("h2", 2, 20, 6), node("h0", 8, 1, 0), node("h1", 3, 1, 0)}, "",
			[2]string{}},
		"limited": {[]NodeKernel{node("h2", 2, 8, 8), node("h0", 8, 1, 0)}, "", [2]string{}},
		"idle":    {[]NodeKernel{node("h2", 0, 0, 0), node("h0", 0, 0, 0)}, "", [2]string{}},
		"none":    {nil, "", [2]string{}},
	} {
		r := &Report{Host: Host{CPUs: 2}, Steps: []Step{{End: 10}}, Fidelity: &Fidelity{Nodes: test.nodes}}
		if what == "machine" { // that the kernel uses: no other program is to blame
			r.Fidelity.Others = []usage.Busy{{Name: "stress", CPUs: 1.5}}
			if c := r.Contention(); !strings.HasSuffix(c.String(), "; the testbed's programs had 15% of the "+
				"processors' time, and other programs on this machine 75%") {
				t.Errorf("beside others: %s", c)
			}
			r.Fidelity.Others[0].CPUs = 0.1
		}
		c := r.Contention()
		got := ""
		if c != nil {
			got = c.String()
		}
		if of := [2]string{c.Of("h2"), c.Of("h1")}; got != test.want || of != test.of {
			t.Errorf("%s: %q, %q", what, got, of)
		}
	}
	if (&Report{}).Contention() != nil {
		t.Error("a report without fidelity has contention")
	}
}
