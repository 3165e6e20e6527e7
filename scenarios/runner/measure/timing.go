package measure

import (
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// Limits of the lateness of soft switches. Their unit is the smallest time that the model
// distinguishes on links that carried something. A frame that is late by less looks as if it had
// passed one hop, or waited for one frame, more or less.
const (
	// A second is late if 1 % of its frames were later than the unit. One late second makes a run
	// degraded. The limit of the whole run's 99th percentile is verify.LateLimit.

	// lostByEmulatorOverloaded is the share of the nodes' frames that the emulator may lose between
	// the kernel and its queues before the run proves nothing. One lost frame makes the run
	// degraded.
	lostByEmulatorOverloaded = 0.01

	// unmatchedDegraded is the share of the watched frames whose lateness may be unknown before the
	// run is degraded.
	unmatchedDegraded = 0.10

	// waitDegraded and waitOverloaded are shares of the run's time in which the timing thread was
	// ready to run but had no CPU.
	waitDegraded   = 0.10
	waitOverloaded = 0.50
)

// State is the state of a testbed at one time: its links, and the state of the soft switches, or
// nil without soft switches.
type State struct {
	Links    []fabric.LinkState
	Soft     *live.State
	Nodes    []supervisor.NodeState
	Switches []supervisor.SwitchState
	Backlog  uint64
	// NodeFaults are the faults of nodes that act.
	NodeFaults []softswitch.FaultState
}

// softTiming computes the report's timing from the state of the soft switches at the run's start
// and end. It returns nil if either is nil.
func softTiming(p *plan.Plan, began time.Time, first, last *live.State) *report.Timing {
	if first == nil || last == nil {
		return nil
	}
	scale := virtualMicros(p.Dilation)
	t := &report.Timing{
		Arrivals:  spread(last.Timing.Arrivals, scale),
		Released:  spread(last.Late, scale),
		Unit:      scale(last.Timing.Unit),
		Unmatched: Since(first.Timing.Unmatched, last.Timing.Unmatched),
		Windows:   last.Timing.Windows, Late: last.Timing.Late, Waited: -1,
		Priority: last.Timing.Thread.Priority, Nice: last.Timing.Thread.Nice,
		First: window(last.Timing.First, began, scale), Worst: window(last.Timing.Worst, began, scale),
	}
	if before, after := first.Timing.Thread,
		last.Timing.Thread; before.Known && after.Known && after.Since > before.Since {
		t.Waited = float64(after.Waited-before.Waited) / float64(after.Since-before.Since)
		t.Ran = float64(after.Ran-before.Ran) / float64(after.Since-before.Since)
	}
	t.Lost = Since(first.RingDropped, last.RingDropped)
	for i := range min(len(first.NICs), len(last.NICs)) {
		was, is := &first.NICs[i], &last.NICs[i]
		t.Lost += Since(was.Lost(), is.Lost())
		t.Frames += Since(was.Port.Received, is.Port.Received) + Since(was.Bypass.Sent, is.Bypass.Sent)
	}
	return t
}

// virtualMicros returns a function that converts real time into microseconds of the testbed's time.
func virtualMicros(dilation uint64) func(time.Duration) float64 {
	unit := clock.Dilation(dilation).Virtual(1e3)
	return func(d time.Duration) float64 { return float64(d) / unit }
}

func lateness(q live.Quantiles, scale func(time.Duration) float64) report.Lateness {
	return report.Lateness{Frames: q.Frames, P50: scale(q.P50), P99: scale(q.P99), Worst: scale(q.Worst)}
}

// spread returns a lateness with its non-empty buckets.
func spread(h live.Histogram, scale func(time.Duration) float64) report.Lateness {
	l := lateness(h.Quantiles, scale)
	if len(h.Counts) == 0 {
		return l
	}
	var below uint64
	from := 0.0
	for i, bound := range live.Bounds() {
		to := scale(bound)
		if n := h.Counts[i] - below; n > 0 {
			l.Buckets = append(l.Buckets, report.Bucket{From: from, To: to, Frames: n})
		}
		below, from = h.Counts[i], to
	}
	if rest := h.Frames - below; rest > 0 {
		l.Buckets = append(l.Buckets, report.Bucket{From: from, Frames: rest})
	}
	return l
}

func window(w *live.Window, began time.Time, scale func(time.Duration) float64) *report.Window {
	if w == nil {
		return nil
	}
	seconds := func(d time.Duration) float64 { return scale(d) / 1e6 }
	return &report.Window{
		From:     seconds(w.From.Sub(began)),
		Length:   seconds(w.For),
		WorstAt:  seconds(w.WorstAt.Sub(began)),
		Lateness: lateness(w.Quantiles, scale),
	}
}

// lateLinks sets the lateness of the link directions that end at a node.
func lateLinks(links []report.LinkRate, p *plan.Plan, last *live.State) {
	if last == nil {
		return
	}
	of := map[string]*live.NICState{}
	for i := range last.NICs {
		of[last.NICs[i].Node+":"+last.NICs[i].NIC] = &last.NICs[i]
	}
	for i := range links {
		if nic := of[links[i].To]; nic != nil && nic.Arrivals.Frames > 0 {
			late := spread(nic.Arrivals, virtualMicros(p.Dilation))
			links[i].Late = &late
		}
	}
}

// judgeTiming reports each reason in a soft switch's timing for a verdict other than faithful.
func judgeTiming(t *report.Timing, against func(level int, format string, args ...any)) {
	if t.Late > 0 && t.First != nil {
		against(degraded, "frames arrived late in %d of %d seconds; in the first of these, from %.1f s on, "+
			"one in 100 was more than %s late, and the latest, at %.2f s, was %s late (limit %s, the "+
			"smallest time of the links in use)",
			t.Late, t.Windows, max(0, t.First.From), units.Micros(t.First.P99), t.First.WorstAt,
			units.Micros(t.First.Lateness.Worst), units.Micros(t.Unit))
	}
	limit := float64(verify.LateLimit(time.Duration(t.Unit*1e3))) / 1e3
	switch {
	case t.Unit == 0: // nothing to compare with
	case t.Arrivals.P99 > limit:
		against(overloaded, "1%% of all frames arrived more than %s late (limit %s)",
			units.Micros(t.Arrivals.P99), units.Micros(limit))
	case t.Released.P99 > limit:
		against(overloaded, "1%% of all frames were sent to the nodes more than %s late (limit %s)",
			units.Micros(t.Released.P99), units.Micros(limit))
	}
	if watched := t.Arrivals.Frames + t.Unmatched; float64(t.Unmatched) > unmatchedDegraded*float64(watched) {
		against(degraded, "the lateness of %d of %d watched frames is unknown", t.Unmatched,
			watched)
	}
	if share := float64(t.Lost) / max(1, float64(t.Lost+t.Frames)); t.Lost > 0 {
		against(level(share, lostByEmulatorOverloaded), "the emulator itself lost %d of %d frames", t.Lost,
			t.Lost+t.Frames)
	}
	if t.Waited > waitDegraded {
		against(level(t.Waited, waitOverloaded),
			"the timing thread waited for a CPU in %.0f%% of the time (limit %.0f%%)", t.Waited*100,
			waitDegraded*100)
	}
}

// timers lists the timers that run in real time in a dilated run. Of TCP's timers, only the minimum
// retransmission timeout is stretched. quic-go has no clock of its own to stretch.
var timers = map[string][]string{
	spec.UndilatedTCP: {
		"the first retransmission timeout of 1 s", "delayed acknowledgements of 40 to 200 ms",
		"the largest retransmission timeout of 120 s",
		"the zero-window probe", "keepalive", "RACK's and the tail loss probe's timers",
	},
	spec.UndilatedQUIC: {
		"the probe timeout, with the peer's delayed acknowledgements of 25 ms",
		"loss detection by time", "pacing", "keepalive",
	},
	spec.UndilatedPrograms: {"their own clocks and timers", "the kernel's timers of their sockets"},
}

// Undilated returns the parts of a file's steps that run in real time.
func Undilated(file *spec.Testbed) (found []report.Undilated) {
	for _, what := range file.Undilated() {
		found = append(found, report.Undilated{What: what, Timers: timers[what],
			Accepted: slices.Contains(file.AcceptUndilated, what)})
	}
	return found
}
