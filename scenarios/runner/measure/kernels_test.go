package measure

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/internal/usage"
	"railbed/plan"
	"railbed/testbed/supervisor"
)

func TestNodesKernelsAreJudged(t *testing.T) {
	for _, c := range []struct {
		unread  uint64
		waited  float64 // of 1 s that its programs ran
		verdict string
	}{
		{0, 9, report.Faithful},
		{500, 0.01, report.Faithful}, // a slow program
		{5, 0.2, report.Degraded},
		{500, 0.2, report.Overloaded},
	} {
		f := &report.Fidelity{Nodes: []report.NodeKernel{{Node: "h1", Ran: 1, Waited: c.waited,
			Stack: usage.Stack{Received: 1000, Drops: map[string]uint64{usage.UDPReceiveBuffer: c.unread,
				usage.UDPNoSocket: 900}}}}}
		Judge(f, nil)
		if f.Verdict != c.verdict || (c.verdict == report.Faithful) != (len(f.Reasons) == 0) {
			t.Errorf("%+v: %s %q", c, f.Verdict, f.Reasons)
		}
	}
}

func TestKernelsCountTheRunAlone(t *testing.T) {
	at := func(received, unread uint64, ran, waited time.Duration) State {
		return State{Nodes: []supervisor.NodeState{
			{Name: "guest"}, // whose kernel is its own
			{Name: "idle", Stack: &usage.Stack{Received: received}, Programs: &usage.Programs{}},
			{Name: "h1", Stack: &usage.Stack{Received: received,
				Drops: map[string]uint64{usage.UDPReceiveBuffer: unread, usage.UDPNoSocket: 7}},
				Programs: &usage.Programs{Ran: ran, Waited: waited}},
		}}
	}
	s := &Sampler{first: at(100, 10, time.Second, time.Second), last: at(400, 60, 4*time.Second,
		2*time.Second)}
	got := s.kernels()
	want := report.NodeKernel{Node: "h1", Ran: 3, Waited: 1, Stack: usage.Stack{Received: 300,
		Drops: map[string]uint64{usage.UDPReceiveBuffer: 50}}}
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) || got[0].Denied() != 0.25 ||
		got[0].Dropped() != 50 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The report adds up the drops of the NICs' queues and of the stack.
func TestKernelsCountALossOnce(t *testing.T) {
	for _, c := range []struct {
		queue, noRoute, unread uint64
		want                   string
		lost                   uint64
	}{
		{141, 0, 0, "nic-queue 141", 141},
		{100, 50, 0, "ip-no-route 50, nic-queue 100", 100}, // 50 had no way
		{100, 0, 7, "udp-receive-buffer 7, nic-queue 100", 107},
		{0, 0, 0, "", 0},
	} {
		nic := func(dropped uint64) fabric.LinkState {
			l := state(1, 0)
			l.AToB.Shaper.Drops = dropped
			return l
		}
		at := func(noRoute, unread uint64) State {
			return State{Nodes: []supervisor.NodeState{{Name: "h0", Programs: &usage.Programs{},
				Stack: &usage.Stack{Drops: map[string]uint64{usage.IPNoRoute: noRoute,
					usage.UDPReceiveBuffer: unread, usage.UDPNoSocket: 0}}}}}
		}
		s := &Sampler{plan: &plan.Plan{}, first: at(0, 0), last: at(c.noRoute, c.unread)}
		s.add(time.Unix(1, 0), 0, []fabric.LinkState{nic(0)}, cpuTime{})
		s.add(time.Unix(2, 0), 0, []fabric.LinkState{nic(c.queue)}, cpuTime{})
		node, _, _ := strings.Cut(s.meters[0].rate.From, ":")
		s.first.Nodes[0].Name, s.last.Nodes[0].Name = node, node
		var got report.NodeKernel
		for _, n := range s.kernels() {
			got = n
		}
		if got.Reasons() != c.want || got.Lost() != c.lost {
			t.Errorf("%+v: %q and %d lost, want %q and %d", c, got.Reasons(), got.Lost(), c.want, c.lost)
		}
	}
}

// A packet that the interface dropped because its link was down is not the backlog's.
func TestBacklogOfKernelLinks(t *testing.T) {
	const reason = "the host dropped 30 of 1000 packets between interfaces: too many waited for a CPU"
	sample := func(packets, lost, backlog uint64) State {
		link := state(packets*1000, 0)
		link.A.Counters.TxDropped = lost
		return State{Links: []fabric.LinkState{link}, Backlog: backlog}
	}
	s := &Sampler{plan: &plan.Plan{}, first: sample(0, 5, 100), last: sample(1000, 55, 130)}
	for i, seen := range []State{s.first, sample(500, 25, 110), s.last} {
		s.add(time.Unix(int64(i), 0), 0, seen.Links, cpuTime{})
	}
	f := &report.Fidelity{Links: s.rates(), Backlog: s.backlog()}
	Judge(f, nil)
	if f.Verdict != report.Overloaded || !slices.Equal(f.Reasons, []string{reason}) {
		t.Errorf("%s %q, want %q", f.Verdict, f.Reasons, reason)
	}
}
