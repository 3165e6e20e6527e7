package measure

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/plan"
)

// Each number of a soft switch's timing moves the verdict, and its reason says
// by how much.
func TestTimingByNumbers(t *testing.T) {
	late := func(p99 float64) *report.Window {
		return &report.Window{From: 2.5, Length: 1, WorstAt: 3.25,
			Lateness: report.Lateness{Frames: 500, P99: p99, Worst: 19800}}
	}
	cases := []struct {
		name   string
		timing report.Timing
		want   string
		says   string
	}{
		{"exact", report.Timing{Unit: 12, Arrivals: report.Lateness{P99: 11}, Windows: 9, Frames: 1000,
			Waited: 0.05}, report.Faithful, ""},
		{"late second", report.Timing{Unit: 4000, First: late(12300), Late: 1, Windows: 6}, report.Degraded,
			"frames arrived late in 1 of 6 seconds; in the first of these, from 2.5 s on, one in 100 was " +
				"more than 12.3ms late, and the latest, at 3.25 s, was 19.8ms late (limit 4ms, the " +
				"smallest time of the links in use)"},
		{"late run", report.Timing{Unit: 12, Arrivals: report.Lateness{P99: 10_001}, First: late(12300),
			Late: 1, Windows: 1}, report.Overloaded,
			"1% of all frames arrived more than 10ms late (limit 10ms)"},
		{"late run on slow links", report.Timing{Unit: 4000, Arrivals: report.Lateness{P99: 39_999},
			First: late(50000), Late: 1, Windows: 1}, report.Degraded, "late in 1 of"},
		{"late by its own clock", report.Timing{Unit: 12, Arrivals: report.Lateness{P99: 11},
			Released: report.Lateness{P99: 10_001}}, report.Overloaded,
			"1% of all frames were sent to the nodes more than 10ms late (limit 10ms)"},
		{"some not known", report.Timing{Arrivals: report.Lateness{Frames: 91}, Unmatched: 9},
			report.Faithful, ""},
		{"many not known", report.Timing{Arrivals: report.Lateness{Frames: 89}, Unmatched: 11},
			report.Degraded, "the lateness of 11 of 100 watched frames is unknown"},
		{"nothing to be late against", report.Timing{Arrivals: report.Lateness{P99: 50_000}}, report.Faithful,
			""},
		{"one lost", report.Timing{Lost: 1, Frames: 999}, report.Degraded,
			"the emulator itself lost 1 of 1000 frames"},
		{"2% lost", report.Timing{Lost: 2, Frames: 98}, report.Overloaded, "lost 2 of 100"},
		{"thread waited", report.Timing{Waited: 0.11}, report.Degraded, "waited for a CPU in 11%"},
		{"thread waited long", report.Timing{Waited: 0.51}, report.Overloaded, "waited for a CPU in 51%"},
		{"not known", report.Timing{Waited: -1}, report.Faithful, ""},
	}
	for _, c := range cases {
		f := &report.Fidelity{Timing: &c.timing}
		Judge(f, nil)
		if f.Verdict != c.want || !strings.Contains(strings.Join(f.Reasons, "\n"), c.says) ||
			(c.says == "") != (len(f.Reasons) == 0) {
			t.Errorf("%s: %s %q, want %s %q", c.name, f.Verdict, f.Reasons, c.want, c.says)
		}
	}
}

// The report's times are virtual and its counts those of the run.
func TestSoftTimingIsOfTheRun(t *testing.T) {
	began := time.Unix(1000, 0)
	first := &live.State{NICs: []live.NICState{{NoMemory: 5}}}
	first.NICs[0].Port.Received = 100
	first.Timing.Thread = live.Thread{Known: true, Ran: time.Second, Waited: time.Second,
		Since: 10 * time.Second}
	last := &live.State{NICs: []live.NICState{{Node: "h0", NIC: "eth0", NoMemory: 6, Refused: 1,
		Arrivals: live.Histogram{Quantiles: live.Quantiles{Frames: 7, P99: 10 * time.Millisecond}}}}}
	last.NICs[0].Port.Received, last.NICs[0].Port.KernelDropped = 150, 2
	first.Timing.Unmatched = 2
	seen := live.Histogram{Quantiles: live.Quantiles{Frames: 7, P50: time.Millisecond,
		P99: 10 * time.Millisecond, Worst: 2 * time.Second}}
	// 4 of less than 1.024 us, one more of less than 2.1 ms, 2 of more than all
	seen.Counts = make([]uint64, len(live.Bounds()))
	for i := range seen.Counts {
		seen.Counts[i] = 4
		if i >= 11 {
			seen.Counts[i] = 5
		}
	}
	last.Timing = live.Timing{
		Unmatched: 5,
		Arrivals:  seen,
		Unit:      5 * time.Millisecond, Windows: 3, Late: 1,
		First: &live.Window{From: began.Add(2 * time.Second), For: time.Second,
			WorstAt: began.Add(2500 * time.Millisecond)},
		Thread: live.Thread{Known: true, Ran: 3 * time.Second, Waited: 2 * time.Second,
			Since: 20 * time.Second, Nice: -20},
	}
	p := &plan.Plan{Dilation: 10}
	got := softTiming(p, began, first, last)
	if got.Arrivals.P50 != 100 || got.Arrivals.P99 != 1000 || got.Arrivals.Worst != 2e5 || got.Unit != 500 {
		t.Errorf("lateness %+v, unit %v; want a tenth of the real times", got.Arrivals, got.Unit)
	}
	if diff := cmp.Diff([]report.Bucket{{To: 0.1024, Frames: 4}, {From: 104.8576, To: 209.7152, Frames: 1},
		{From: 107374.1824, Frames: 2}}, got.Arrivals.Buckets); diff != "" {
		t.Error(diff)
	}
	if got.First == nil || got.First.From != 0.2 || got.First.WorstAt != 0.25 || got.Worst != nil {
		t.Errorf("first %+v, want it 0.2 virtual seconds after the start", got.First)
	}
	if math.Abs(got.Waited-0.1) > 1e-9 || math.Abs(got.Ran-0.2) > 1e-9 || got.Lost != 4 || got.Frames != 50 ||
		got.Unmatched != 3 || got.Nice != -20 {
		t.Errorf("%+v; want 10%% waited, 20%% ran, 4 lost, 50 frames", got)
	}
	links := []report.LinkRate{{From: "h0:eth0", To: "s0:p0"}, {From: "s0:p0", To: "h0:eth0"}}
	lateLinks(links, p, last)
	if links[0].Late != nil || links[1].Late == nil || links[1].Late.P99 != 1000 {
		t.Errorf("late links %+v", links)
	}
	if softTiming(p, began, nil, nil) != nil {
		t.Error("timing without soft switches")
	}
}

// soft is the link between two soft switches of 1 Gbit/s whose first direction
// has sent bytes and holds a backlog.
func soft(bytes uint64, change func(*softswitch.PortState)) fabric.LinkState {
	d := fabric.DirectionState{Direction: plan.Direction{Rate: 1e9}}
	l := fabric.LinkState{Name: "leaf1--spine1", Up: true, AToB: d, BToA: d}
	l.AToB.Shaper.BacklogBytes = 9000
	sender := &softswitch.PortState{Up: true}
	sender.Counters.Sent = softswitch.Count{Packets: bytes / 1000, Bytes: bytes}
	change(sender)
	l.A = fabric.EndState{Node: "leaf1", Port: "p4", Soft: sender}
	l.B = fabric.EndState{Node: "spine1", Port: "p0", Soft: &softswitch.PortState{Up: true}}
	return l
}

// What a link between soft switches achieved is the switch's own count, and
// time in which flow control held it back does not count.
func TestSoftLinksRate(t *testing.T) {
	const full = 25_000_000 // of 200 ms
	none := func(*softswitch.PortState) {}
	runs := func(share uint64, change func(*softswitch.PortState)) (states []fabric.LinkState) {
		for i := range uint64(4) {
			states = append(states, soft(i*full*share/100, func(p *softswitch.PortState) {
				change(p)
				if p.Counters.PausesReceived[3] > 0 {
					p.Counters.PausesReceived[3] += i
				}
			}))
		}
		return states
	}
	cases := []struct {
		name    string
		states  []fabric.LinkState
		busy    bool
		verdict string
	}{
		{"exact", runs(100, none), true, report.Faithful},
		{"slow", runs(80, none), true, report.Overloaded},
		{"slow for pauses", runs(80, func(p *softswitch.PortState) {
			p.Counters.PausesReceived[3] = 1
		}), false, report.Faithful},
		{"slow while paused", runs(80, func(p *softswitch.PortState) {
			p.Paused[3] = true
		}), false, report.Faithful},
		{"slow for gentle flow control", runs(50, func(p *softswitch.PortState) { p.Slowed = true }), false,
			report.Faithful},
	}
	for _, c := range cases {
		rates := measure(c.states...)
		f := &report.Fidelity{Links: rates}
		Judge(f, nil)
		if len(rates) != 1 || (rates[0].Busy > 0) != c.busy || f.Verdict != c.verdict {
			t.Errorf("%s: %s %v of %+v, want %s, busy %v", c.name, f.Verdict, f.Reasons, rates, c.verdict,
				c.busy)
		}
	}
	// 24 bytes of overhead for each of 1,000: the link carried 2.4 % more.
	with := runs(100, none)
	for i := range with {
		with[i].AToB.Overhead = 24
	}
	if rates := measure(with...); rates[0].Bytes != 3*full*1024/1000 {
		t.Errorf("%d bytes with overhead, want %d", rates[0].Bytes, 3*full*1024/1000)
	}
}

// TestReportHasReasons: what a soft port did to packets while the steps ran is in the
// report by reason and priority, and what it did before is not.
func TestReportHasReasons(t *testing.T) {
	var states []fabric.LinkState
	for i := range uint64(3) {
		states = append(states, soft(1000*i, func(p *softswitch.PortState) {
			p.Drops = softswitch.ByReason{"tail": {0: 5 + i, 3: 2 * i}, "loss": {1: 9}}
			p.Marks = softswitch.ByReason{"red": {3: 40 * i}}
		}))
	}
	rate := measure(states...)[0]
	if diff := cmp.Diff(map[string][8]uint64{"tail": {0: 2, 3: 4}}, rate.Drops); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][8]uint64{"red": {3: 80}}, rate.Marks); diff != "" || rate.Trims != nil {
		t.Errorf("%s; trims %v", diff, rate.Trims)
	}
}
