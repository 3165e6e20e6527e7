package runner

import (
	"encoding/json"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestDaemonThatEnds checks that commands run in routers with daemons. The report must say how long
// the routers took to follow a cut and the end of a daemon. A daemon that ends must fail the run by
// name, even if a step started it again.
func TestDaemonThatEnds(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.FRR)
	const file = `
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 1}, switch: {kind: router}, links: {default: {rate: 100mbit}}, routing: {daemon: frr}}
steps:
  - exec: {name: asked, nodes: ["leaf*"], command: [vtysh, -c, show bgp summary]}
  - link: {where: leaf1--spine1, state: down}
  - sleep: 400ms
  - exec: {nodes: [spine2], command: [sh, -c, kill -9 $(cat /run/frr/bgpd.pid)]}
  - sleep: 100ms
  - exec: {nodes: [spine2], command: [sh, -c, "/usr/lib/frr/bgpd -d -f /run/frr/bgpd.conf --log file:/run/frr/bgpd.log && sleep 0.5 && kill -9 $(cat /run/frr/bgpd.pid) && sleep 0.2"]}
`
	o := options(t, file)
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Fail)
	if !strings.HasPrefix(r.Reason, "bgpd of spine2 ended at ") ||
		!strings.Contains(r.Reason, ": signal 9 (killed): ") || !strings.Contains(r.Reason, " BGP: ") {
		t.Errorf("reason %q, want daemon, switch, signal and the end of the log", r.Reason)
	}
	if said := readOut(t, o, "logs/leaf1/asked.out"); !strings.Contains(said, "BGP router identifier") {
		t.Errorf("vtysh in leaf1 said %q", said)
	}
	if r.Routing == nil || len(r.Routing.Reactions) != 3 || len(r.Routing.Ended) != 2 ||
		r.Routing.Ended[0].Meant || !strings.HasPrefix(r.Routing.Ended[1].How,
		"exit code unknown (restarted by hand): ") {
		t.Fatalf("routing %+v, want reactions to a cut and to two ends", r.Routing)
	}
	for i, to := range []string{"leaf1--spine1 down", "bgpd of spine2 ended"} {
		one := r.Routing.Reactions[i]
		// A cut is seen by both of its routers and told to the third.
		if one.To[0] != to || one.Routes < 2 || one.Routers < 2 || one.First <= 0 || one.Last < one.First ||
			one.Last > 5 {
			t.Errorf("reaction %+v, want one to %s", one, to)
		}
	}
}

// TestDaemonsThatAreMeant checks that the daemons which steps are to end are compared with the
// daemons that ended: which, when, and in which router.
func TestDaemonsThatAreMeant(t *testing.T) {
	const file = `
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 1}, switch: {kind: router}, links: {default: {rate: 100mbit}}, routing: {daemon: frr}}
steps:
  - sleep: 1s
  - exec: {nodes: ["spine*"], command: [killall, bgpd], ends: [bgpd]}
`
	at := func(router, daemon string, at float64) report.DaemonEnd {
		return report.DaemonEnd{Switch: router, Daemon: daemon, At: at, How: "exit code 0"}
	}
	for _, test := range []struct {
		ended []report.DaemonEnd
		want  string
	}{
		{[]report.DaemonEnd{at("spine1", "bgpd", 1.1), at("spine2", "bgpd", 1.2)}, ""},
		{[]report.DaemonEnd{at("spine1", "bgpd", 1.1)}, "should have ended bgpd of spine2, which still runs"},
		{[]report.DaemonEnd{at("spine1", "bgpd", 0.5), at("spine2", "bgpd", 1.2)},
			"should have ended bgpd of spine1, which still runs"},
		{[]report.DaemonEnd{at("spine1", "bgpd", 1.1), at("spine1", "zebra", 1.1), at("spine2", "bgpd", 1.2)},
			"zebra of spine1 ended at 1.1s: exit code 0"},
		{[]report.DaemonEnd{at("leaf1", "bgpd", 1.1), at("spine1", "bgpd", 1.1), at("spine2", "bgpd", 1.2)},
			"bgpd of leaf1 ended at 1.1s: exit code 0"},
	} {
		r := &run{Options: options(t, file)}
		var err error
		if r.prepared, err = prepare(&r.Options); err != nil {
			t.Fatal(err)
		}
		r.report = r.newReport()
		r.report.Steps[1].State, r.report.Steps[1].Start = report.Passed, 1
		got := ""
		if err := r.meant(test.ended); err != nil {
			got = err.Error()
		}
		if got != test.want && (test.want == "" || !strings.HasSuffix(got, test.want)) {
			t.Errorf("%v: %q, want %q", test.ended, got, test.want)
		}
	}
}

// TestSessionsAreFastFromTheStart: bring-up ends when every BFD session detects a dead neighbour in the
// file's time, so that the first step may cut a link whose carrier stays.
func TestSessionsAreFastFromTheStart(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.FRR)
	o := options(t, `
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 3, hosts-per-leaf: 1}, switch: {kind: router}, links: {default: {rate: 100mbit}}, routing: {daemon: frr, bfd: 150ms}}
steps:
  - exec: {name: asked, nodes: ["leaf*"], command: [vtysh, -d, bfdd, -c, show bfd peers json]}
`)
	want(t, runAll(t, t.Context(), o), verdict.Pass)
	for _, leaf := range []string{"leaf1", "leaf2"} {
		var peers []struct {
			Status   string
			Interval int `json:"remote-transmit-interval"`
		}
		if err := json.Unmarshal([]byte(readOut(t, o, "logs/"+leaf+"/asked.out")), &peers); err != nil {
			t.Fatal(err)
		}
		if len(peers) != 3 {
			t.Errorf("%s has %d sessions, want 3", leaf, len(peers))
		}
		for _, peer := range peers {
			if peer.Status != "up" || peer.Interval != 150 {
				t.Errorf("a session of %s is %+v, want up, 150 ms", leaf, peer)
			}
		}
	}
}
