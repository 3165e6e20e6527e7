package cli

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/capture/verify/evidence"
	"railbed/plan"
)

// TestSelections selects messages of a run. A name that the run does not have is a usage error that lists the
// names of the run. A queue pair's number of several nodes is noted.
func TestSelections(t *testing.T) {
	at := func(host byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, host}), 4791)
	}
	r := &follow.Recording{Flows: []follow.Flow{
		{Src: at(0), Dst: at(1), From: "h0", To: "h1", Protocol: "roce", Workload: "ar", ToRank: 1},
		{Src: at(0), Dst: at(2), From: "h0", To: "h2", Protocol: "roce", Workload: "ar", ToRank: 2},
	}, Messages: []follow.Message{{Flow: 0, QP: 17}, {Flow: 1, QP: 17}, {Flow: 1, QP: 18}}}
	run := &bundle.Run{Workloads: []evidence.Workload{{Name: "ar"}, {Name: "tcp"}},
		Plan: &plan.Plan{Nodes: []plan.Node{{Name: "h0"}, {Name: "h1"}, {Name: "h2"}, {Name: "h10"}}}}
	for _, c := range []struct {
		workload, flow, qp string
		count              int
		out, err           string
	}{
		{count: 3},
		{workload: "ar", count: 3},
		{workload: "tcp", out: "no recorded message matches --workload tcp\n"},
		{workload: "foo", err: `--workload foo: the run has no workload "foo"; it has ar, tcp`},
		{workload: "arr", err: "did you mean ar? It has ar, tcp"},
		{flow: "h0,h1", count: 1},
		{flow: "h0,10.0.0.2", count: 2},
		{flow: "h0,10.0.0.2:4791", count: 2},
		{flow: "h1,h10", out: "no recorded message matches --flow h1,h10\n"},
		{flow: "10.0.0.77,h1", out: "no recorded message matches --flow 10.0.0.77,h1\n"},
		{flow: "leaf7,h99", err: `--flow leaf7,h99: the run has no node "leaf7"; it has h0, h1, h2, h10`},
		{flow: "h0,h11", err: "did you mean h1?"},
		{qp: "0x11", count: 2, out: "--qp 0x11 is a queue pair of each of h1, h2; --flow SENDER,RECEIVER"},
		{qp: "0x11", flow: "h0,h1", count: 1},
		{qp: "18", count: 1},
	} {
		flags := followFlags{workload: c.workload, flow: c.flow, qp: c.qp,
			asked: func(string) bool { return false }}
		var out bytes.Buffer
		selected, err := flags.selected(r, run)
		if err == nil {
			(&app{stdout: &out}).noteSelection(flags, r, selected)
		}
		if err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)) ||
			err == nil && c.err != "" || len(selected) != c.count ||
			!strings.HasPrefix(out.String(), c.out) || c.out == "" && out.Len() > 0 {
			t.Errorf("%+v: %v, %q, %v", c, selected, &out, err)
		}
	}
}

// TestWhySaysTheOrderOfCauses: the answer has a line on the order if a cause has a larger share than the
// cause before.
func TestWhySaysTheOrderOfCauses(t *testing.T) {
	cause := func(share float64, unfinished int) follow.Cause {
		return follow.Cause{Where: []string{"h0"}, What: "x", Share: share, Unfinished: unfinished}
	}
	for _, test := range []struct {
		causes []follow.Cause
		said   bool
	}{
		{[]follow.Cause{cause(0.6, 0), cause(0.14, 0), cause(0.09, 0)}, false},
		{[]follow.Cause{cause(0.6, 0), cause(0.09, 0), cause(0.14, 0)}, true},
		{[]follow.Cause{cause(0.01, 2), cause(0.6, 0)}, false},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		a.printAnswer("run", &follow.Answer{Causes: test.causes})
		if said := strings.Contains(out.String(), "few long delays come before"); said != test.said {
			t.Errorf("%v: the order is in the answer: %v, want %v:\n%s", test.causes, said, test.said, &out)
		}
	}
}
