package measure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/usage"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
	"railbed/testkit/plantest"
)

// askedSampler is a sampler of ten seconds of a file with three hosts. Each host's programs ran for a second
// and waited for five. Steps are the file's steps, and carried is the share of h0's link's rate in use.
func askedSampler(t *testing.T, kind, steps string, carried float64) *Sampler {
	t.Helper()
	text := "name: x\nfabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: " + kind + "}}\n" +
		"steps:\n- sleep: 1s\n" + steps
	file, err := spec.Decode("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{plan: plantest.Compile(t, text), file: file, began: time.Unix(100, 0),
		ended: time.Unix(110, 0)}
	at := func(by time.Duration) (nodes []supervisor.NodeState) {
		for _, name := range []string{"h0", "h1", "h2"} {
			nodes = append(nodes, supervisor.NodeState{Name: name, Stack: &usage.Stack{Received: uint64(by)},
				Programs: &usage.Programs{Ran: by, Waited: 5 * by}})
		}
		return nodes
	}
	s.first.Nodes, s.last.Nodes = at(0), at(time.Second)
	s.meters = []linkMeter{{rate: report.LinkRate{Asked: 1e9, Peak: uint64(carried * 1e9), Bytes: 1000}}}
	return s
}

// Programs that waited for processors make a run degraded, unless a link or the file was the bound.
func TestStarvedProgramsAreNamed(t *testing.T) {
	const all = "programs of h0, h1, h2 were denied a processor for 83.3% of the time"
	for name, c := range map[string]struct {
		steps             string
		carried           float64
		throttled, waited time.Duration // of h1
		want              string        // the nodes that are named
	}{
		"no link is busy":     {want: all},
		"a link is busy":      {carried: 0.81},
		"a link is not quite": {carried: 0.79, want: all},
		"the file slows h1": {steps: "- fault: {where: h1, slow: {cpu: 0.1}}\n",
			want: "programs of h0, h2 were"},
		"the file hangs all":      {steps: "- fault: {where: '*', hang: true, for: 3s}\n"},
		"the fault is of packets": {steps: "- fault: {where: nics, drop: {every: 9}}\n", want: all},
		"a limit of CPUs":         {throttled: 4 * time.Second, want: "programs of h0, h2 were"},
		"h1 waits little":         {waited: 900 * time.Millisecond, want: "programs of h0, h2 were"},
	} {
		s := askedSampler(t, "soft", c.steps, c.carried)
		h1 := s.last.Nodes[1].Programs
		h1.Throttled = c.throttled
		if c.waited > 0 {
			h1.Waited = c.waited
		}
		f := &report.Fidelity{Nodes: s.kernels(), Links: s.rates()}
		Judge(f, nil)
		text, verdict := strings.Join(f.Reasons, "\n"), report.Faithful
		if c.want != "" {
			verdict = report.Degraded
		}
		if f.Verdict != verdict || (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s %q, want %s and %q", name, f.Verdict, text, verdict, c.want)
		}
	}
}

// Sources that sent nothing and ranks that read nothing, because of faults of the file, are no sign of a busy
// host. Neither are packets that found no room in sockets of such nodes.
func TestFaultsOfNodesAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		steps string
		held  float64 // share of h1's time
		want  string
	}{
		"no fault":            {held: 0.3, want: report.Overloaded},
		"hang":                {"- fault: {where: h1, hang: true, for: 3s}\n", 0.3, report.Faithful},
		"hang, for less":      {"- fault: {where: h1, hang: true, for: 500ms}\n", 0.3, report.Overloaded},
		"slow, to the end":    {"- fault: {where: h1, slow: {cpu: 0.1}}\n", 0.9, report.Faithful},
		"little memory":       {"- fault: {where: h1, memory: 64MB}\n", 0.9, report.Faithful},
		"crash":               {"- fault: {where: h1, crash: true, for: 4s}\n", 0.4, report.Faithful},
		"another node":        {"- fault: {where: h2, hang: true, for: 3s}\n", 0.3, report.Overloaded},
		"a fault of its disk": {"- fault: {where: h1, disk: full}\n", 0.3, report.Overloaded},
		"a program hangs": {"- fault: {where: h1, program: x, hang: true, for: 3s}\n", 0.3,
			report.Faithful},
	} {
		s := askedSampler(t, "soft", c.steps, 1)
		s.last.Nodes[1].Stack.Drops = map[string]uint64{usage.UDPReceiveBuffer: 1 << 40}
		s.last.Soft = fullQueue("h1", 3)
		now := State{Soft: fullQueue("h1", 1000)}
		if fault := s.file.Steps[len(s.file.Steps)-1].Fault; fault != nil {
			now.NodeFaults = []softswitch.FaultState{{Fault: *fault}}
		}
		s.watchQueues(&now)
		f := &report.Fidelity{Nodes: s.kernels(), Links: s.rates(), Timing: &report.Timing{Lost: 997},
			HeldUp:   []report.HeldUp{{Traffic: "x", Node: "h1", Share: c.held, For: 10}},
			Overruns: []report.Overrun{{Workload: "ar", Node: "h1", Packets: 7}}}
		s.leaveOut(f)
		Judge(f, nil)
		if f.Verdict != c.want {
			t.Errorf("%s: %s %q, want %s", name, f.Verdict, f.Reasons, c.want)
		}
	}
}

// fullQueue is the state of soft switches at whose port of a node programs have lost frames for want of room.
func fullQueue(node string, overrun uint64) *live.State {
	return &live.State{NICs: []live.NICState{{Node: node, Bypass: live.BypassState{Overrun: overrun}}}}
}

// The emulator's losses leave out the frames that found a program's queue full while a fault held the program
// back. They keep those before and after the fault, those at other nodes, and those at a node with a limit of
// CPUs.
func TestFullQueuesDuringFaultsAreLeftOut(t *testing.T) {
	const hang = "- fault: {name: f, where: h1, hang: true, for: 3s}\n"
	overruns := []uint64{0, 10, 30, 70, 150, 310} // at the samples
	for name, c := range map[string]struct {
		steps, node string
		acts        []int // samples at which the fault acts
		throttled   time.Duration
		want        uint64 // of the losses
	}{
		"no fault":            {node: "h1", want: 310},
		"between two samples": {steps: hang, node: "h1", want: 310},
		"at samples 2 and 3":  {steps: hang, node: "h1", acts: []int{2, 3}, want: 310 - (20 + 40 + 80)},
		"to the end":          {steps: hang, node: "h1", acts: []int{4, 5}, want: 70},
		"of another node":     {steps: hang, node: "h2", acts: []int{2, 3}, want: 310},
		"of the disk": {steps: "- fault: {name: f, where: h1, disk: full}\n", node: "h1", acts: []int{2},
			want: 310},
		"of no step of the file": {node: "h1", acts: []int{2, 3}, want: 310},
		"a limit of CPUs":        {node: "h1", throttled: 9 * time.Second, want: 310},
	} {
		s := askedSampler(t, "soft", c.steps, 1)
		s.last.Nodes[1].Programs.Throttled = c.throttled
		f := &report.Fidelity{Nodes: s.kernels(), Timing: &report.Timing{Lost: 310}}
		for i, overrun := range overruns {
			now := State{Soft: fullQueue(c.node, overrun)}
			if slices.Contains(c.acts, i) {
				now.NodeFaults = []softswitch.FaultState{{Fault: spec.Fault{Name: "f"}}}
			}
			s.watchQueues(&now)
			s.last = now
		}
		s.leaveOut(f)
		if f.Timing.Lost != c.want {
			t.Errorf("%s: %d frames lost, want %d", name, f.Timing.Lost, c.want)
		}
	}
}

// Packets to a NIC that a program took down are not the emulator's losses, and the report names the NIC.
func TestNICsThatGoDownAreNamed(t *testing.T) {
	for _, c := range []struct {
		downs uint64
		steps string
		want  string // verdict
		note  string
	}{
		{0, "", report.Overloaded, ""},
		{2, "", report.Faithful,
			"h1:eth0 went down 2 times, and no step took its link down: 117 packets to it were lost"},
		{1, "- link: {where: h1--*, state: down}\n", report.Overloaded, ""},
	} {
		s := askedSampler(t, "soft", c.steps, 1)
		state := func(failed, downs uint64) State {
			nic := live.NICState{Node: "h1", NIC: "eth0"}
			nic.Port.SendFailed, nic.Port.Received = failed, failed*10
			link := fabric.LinkState{Name: "h1--leaf1", A: dropping("h1", "eth0", 0),
				B: dropping("leaf1", "p1", 0)}
			link.A.Downs = downs
			return State{Soft: &live.State{NICs: []live.NICState{nic}}, Links: []fabric.LinkState{link}}
		}
		s.first, s.last = state(3, 5), state(120, 5+c.downs)
		f := &report.Fidelity{Downs: s.downs(),
			Timing: softTiming(s.plan, s.began, s.first.Soft, s.last.Soft)}
		f.Timing.Unmatched = 117
		leaveOutDowns(f)
		Judge(f, nil)
		note := ""
		for _, down := range f.Downs {
			note += down.String()
		}
		if f.Verdict != c.want || note != c.note {
			t.Errorf("%+v: %s %q %q", c, f.Verdict, f.Reasons, note)
		}
		if got := s.Interrupted()["h1--leaf1"]; got != (c.downs > 0) {
			t.Errorf("%+v: interrupted %t", c, got)
		}
	}
}

// The times in which a NIC is down are those between samples.
func TestTimesOfNICsThatGoDown(t *testing.T) {
	s := askedSampler(t, "bridge", "", 1)
	start := time.Unix(1000, 0)
	for second, now := range []string{"1 up", "1 up", "2 down", "2 down", "2 up", "3 up", "4 down"} {
		l := fabric.LinkState{Name: "h1--leaf1", A: dropping("h1", "eth0", 0), B: dropping("leaf1", "p1", 0)}
		downs, state := uint64(now[0]-'0'), now[2:]
		l.A.Downs, l.B.Downs, l.A.Operstate = downs, downs, state
		at := start.Add(time.Duration(second) * time.Second)
		s.watchNICs(at, []fabric.LinkState{l})
		s.last, s.ended = State{Links: []fabric.LinkState{l}}, at
	}
	got := ""
	for _, span := range s.downSpans["h1:eth0"] {
		got += fmt.Sprintf("from %v", span.From.Sub(start))
		if !span.To.IsZero() {
			got += fmt.Sprintf(" to %v, ", span.To.Sub(start))
		}
	}
	if want := "from 1s to 4s, from 4s to 5s, from 5s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Interfaces and routers lose packets that no queue counts. Losses for lack of a CPU count against the
// fidelity instead.
func TestLossesOfKernels(t *testing.T) {
	for _, kind := range []string{"router", "soft"} {
		s := askedSampler(t, kind, "", 1)
		state := func(tx, ttl, noPort, backlog uint64) State {
			stack := &usage.Stack{Drops: map[string]uint64{usage.IPReceive: ttl, usage.UDPNoSocket: noPort}}
			return State{Backlog: backlog, Links: []fabric.LinkState{{Name: "h1--leaf1",
				A: dropping("h1", "eth0", 0), B: dropping("leaf1", "p1", tx)}},
				Switches: []supervisor.SwitchState{{Name: "leaf1", Stack: stack}}}
		}
		s.first, s.last = state(1, 1, 0, 7), state(5, 3, 9, 7)
		want := map[string]uint64{"leaf1:p1": 4, "leaf1": 2}
		if kind == "soft" {
			want = nil
		}
		for _, at := range []string{"leaf1:p1", "leaf1", "h1:eth0"} {
			if got := s.Losses()[at]; got != want[at] {
				t.Errorf("%s: %d at %s, want %d", kind, got, at, want[at])
			}
		}
		if s.last.Backlog = 11; s.Losses()["leaf1:p1"] != 0 {
			t.Errorf("%s: drops of the backlog count as the link's: %v", kind, s.Losses())
		}
	}
}

// A node lost packets for a link that was down. The interface counts them. On older kernels they are the
// packets that no interface sent. Packets to groups are the kernel's own.
func TestLossesAtNICs(t *testing.T) {
	for _, c := range []struct {
		downs, dropped, requests, groups, passed, queued uint64
		down                                             map[string]uint64 // groups while it was down
		want                                             uint64
	}{
		{1, 7, 107, 0, 100, 0, nil, 7},
		{1, 0, 107, 0, 100, 0, nil, 7},
		{1, 9, 109, 2, 100, 0, nil, 7},
		{1, 9, 109, 2, 100, 0, map[string]uint64{"h1:eth0": 1}, 8}, // the other one passed
		{1, 2, 102, 2, 100, 0, nil, 0},
		{1, 0, 107, 0, 100, 7, nil, 0}, // its own queue had no room
		{1, 7, 107, 0, 400, 0, nil, 7}, // an interface cut packets
		{0, 7, 107, 0, 100, 0, nil, 0}, // for another reason: see TestLossesOfKernels
		{1, 0, 100, 0, 100, 0, nil, 0},
	} {
		s := askedSampler(t, "soft", "", 1)
		state := func(downs, dropped, queued uint64, o usage.Output) State {
			link := fabric.LinkState{Name: "h1--leaf1", A: dropping("h1", "eth0", dropped),
				B: dropping("leaf1", "p1", dropped)}
			link.A.Downs, link.AToB.Shaper.Drops = downs, queued
			return State{Links: []fabric.LinkState{link},
				Nodes: []supervisor.NodeState{{Name: "h1", Output: &o}}}
		}
		s.first, s.groups = state(4, 3, 1, usage.Output{Requests: 50, Groups: 9, Passed: 40}), c.down
		s.last = state(4+c.downs, 3+c.dropped, 1+c.queued, usage.Output{Requests: 50 + c.requests,
			Groups: 9 + c.groups, Passed: 40 + c.passed})
		if got := s.Losses(); got["h1:eth0"] != c.want || got["leaf1:p1"] != 0 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func dropping(node, port string, dropped uint64) fabric.EndState {
	e := fabric.EndState{Node: node, Port: port}
	e.Counters.TxDropped = dropped
	return e
}
