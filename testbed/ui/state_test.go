package ui

import (
	"testing"
	"time"

	"railbed/fabric"
	"railbed/fabric/softswitch"
	"railbed/internal/units"
	"railbed/testbed/supervisor"
)

// TestRates: a load is the bits that were sent between two states, in the testbed's time, over the rate.
func TestRates(t *testing.T) {
	at := time.Unix(1000, 0)
	state := func(sent uint64, rate units.Rate, drops uint64) *supervisor.State {
		l := fabric.LinkState{Name: "h0--leaf1"}
		l.AToB.Rate, l.BToA.Rate = rate, rate
		l.A.Counters.TxBytes = sent
		l.A.Soft = &softswitch.PortState{Drops: softswitch.ByReason{"tail": {drops}}}
		return &supervisor.State{Links: []fabric.LinkState{l}}
	}
	for _, c := range []struct {
		name     string
		later    time.Duration
		dilation uint64
		sent     uint64
		rate     units.Rate
		bps      float64
		load     float64
		dropping bool
	}{
		{"2 Mbit in 2 s", 2 * time.Second, 1, 250_000, 10e6, 1e6, 0.1, true},
		{"ten times slower", 2 * time.Second, 10, 250_000, 10e6, 1e7, 1, true},
		{"nothing", 2 * time.Second, 1, 0, 10e6, 0, 0, true},
		{"after a lower rate was set", time.Second, 1, 1_250_000, 1e6, 1e7, 1, true},
		{"of an earlier page", time.Minute, 1, 250_000, 10e6, 0, 0, false},
	} {
		before := newSample(state(1000, 10e6, 1), at, c.dilation)
		now := newSample(state(1000+c.sent, c.rate, 3), at.Add(c.later), c.dilation)
		got := now.row(0, before).Directions[0]
		if got.BitsPerSecond != c.bps || got.Load != c.load || got.Dropping != c.dropping || got.Drops != 3 ||
			got.Reasons[0] != "tail 3" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestEventsAreBounded: a page gets the latest events, and a note that earlier events are missing. A page
// that has some events gets only later events.
func TestEventsAreBounded(t *testing.T) {
	w := newWatch(nil)
	for range 10 {
		w.addEvent(supervisor.Event{Kind: "process.start"})
	}
	all, changed := w.since(0)
	if len(all.Events) != 10 || all.Missed || all.change != 10 {
		t.Errorf("%d events, missed %v, change %d", len(all.Events), all.Missed, all.change)
	}
	w.addEvent(supervisor.Event{Kind: "process.exit"})
	select {
	case <-changed:
	default:
		t.Error("an event announces no change")
	}
	if more, _ := w.since(all.change); len(more.Events) != 1 || more.Missed {
		t.Errorf("%d events, missed %v; want the last one", len(more.Events), more.Missed)
	}
	for range eventsKept {
		w.addEvent(supervisor.Event{Kind: "process.start"})
	}
	if late, _ := w.since(all.change); len(late.Events) != eventsKept || !late.Missed {
		t.Errorf("%d events, missed %v; want %d, and that some are missing", len(late.Events), late.Missed,
			eventsKept)
	}
}

// TestUnchangedIsNotSentAgain: a second state with the same links has no rows.
func TestUnchangedIsNotSentAgain(t *testing.T) {
	w := newWatch(nil)
	var row part
	w.replaceLocked(&row, link{Name: "h0--leaf1"})
	first := row.change
	w.replaceLocked(&row, link{Name: "h0--leaf1"})
	if row.change != first {
		t.Error("an equal row counts as changed")
	}
	w.replaceLocked(&row, link{Name: "h0--leaf1", Up: true})
	if row.change == first {
		t.Error("a changed row does not count as changed")
	}
}
