package judge

import (
	"testing"
	"time"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/testkit/verifytest"
)

// ringCharts returns a maker of charts for a ring of reliable datagrams in which leaf1 marks every second
// packet, and rank 0 sends one packet again and is paused once.
func ringCharts(t *testing.T) (*chartMaker, *verifytest.Scene) {
	t.Helper()
	s := verifytest.NewScene(t)
	s.Small = true
	s.RDRing(4)
	s.Mark()
	s.Vanish(7)
	s.DataAgain(7, 100_000)
	s.Pause("leaf1:p0", verifytest.Start+1000, 1000)
	s.Now += 1e9
	follower := follow.NewFollower(follow.Options{Options: s.Options()})
	_, summary := s.Run(follower)
	r, err := follower.Recording(summary)
	if err != nil {
		t.Fatal(err)
	}
	e := &Evidence{Clock: clock.New(1)}
	e.Steps = []report.Step{{Name: "ring", State: report.Passed,
		End: time.Unix(0, r.End).Sub(e.Clock.Epoch()).Seconds()}}
	return &chartMaker{Evidence: e, recording: r, file: "run.pcapng", plan: s.Plan}, s
}

// TestSeriesOfARecording counts in the scene what the time lines have to show.
func TestSeriesOfARecording(t *testing.T) {
	c, scene := ringCharts(t)
	var bytes, marks uint64
	for _, k := range scene.Sightings {
		if k.Out && k.Tap == "leaf1:p2" {
			bytes += uint64(k.Length)
			if k.Comment != "" {
				marks++
			}
		}
	}
	s := &report.Series{Links: []report.LinkSeries{{From: "leaf1:p2"}, {From: "h0:eth0"}}}
	c.series(s)
	sum := func(values []uint64) (n uint64) {
		for _, v := range values {
			n += v
		}
		return n
	}
	uplink, nic := &s.Links[0], &s.Links[1]
	got := uint64(float64(sum(uplink.Bits))*s.Interval/8 + 0.5)
	if s.Source != "run.pcapng" || got > bytes+bytes/100 || got < bytes-bytes/100 || marks == 0 ||
		sum(uplink.Marks) != marks || len(uplink.Bits) != report.SeriesPoints {
		t.Errorf("%s: %d bytes and %d marks of the uplink, want %d and %d", s.Source, got, sum(uplink.Marks),
			bytes,
			marks)
	}
	if sum(nic.Again) != 1 || sum(nic.Pauses) != 1 || len(uplink.Again) > 0 {
		t.Errorf("%d packets sent again and %d pauses, want 1 each: %+v", sum(nic.Again), sum(nic.Pauses),
			nic)
	}
	// A recording without a tap at one of the links cannot replace the counters.
	before := &report.Series{Source: report.CountersSource,
		Links: []report.LinkSeries{{From: "elsewhere:p0"}}}
	if c.series(before); before.Source != report.CountersSource {
		t.Errorf("a recording without taps gives %+v", before)
	}
}

// TestMessagesOfARecording: the lanes have the messages that the recording has, joined where they are too
// many, and the distribution counts all that arrived.
func TestMessagesOfARecording(t *testing.T) {
	c, _ := ringCharts(t)
	r := c.recording
	all := func(*follow.Flow) (lane, to string, is bool) { return "all", "there", true }
	spans := c.messages(r.Start, r.End, all)["all"]
	arrived, bytes, again := 0, int64(0), 0
	for i := range r.Messages {
		if m := &r.Messages[i]; m.Placed > 0 {
			arrived, bytes, again = arrived+1, bytes+m.Bytes, again+m.Again
		}
	}
	for _, s := range spans {
		arrived -= max(s.Count, 1)
		bytes, again = bytes-s.Bytes, again-s.Again
		if s.End < s.Start || s.Of != report.MessageSpan {
			t.Errorf("a span of %+v", s)
		}
	}
	if len(spans) == 0 || len(spans) > report.MessagesKept(1) || arrived != 0 || bytes != 0 || again != 0 {
		t.Errorf("%d spans lack %d messages, %d bytes and %d packets sent again", len(spans), arrived, bytes,
			again)
	}
	found := c.distributions()
	if len(found) != 1 || found[0].What != "rd message" || found[0].Source != "run.pcapng" {
		t.Errorf("distributions %+v, want one of rd", found)
	}
	var many []report.Span
	for i := range 1000 {
		many = append(many, report.Span{Start: float64(i), End: float64(i) + 0.5, Bytes: 1, To: "h1"})
	}
	if got := joined(many, 0.1); len(got) != 1000 {
		t.Errorf("%d spans are left of 1000 with gaps of 0.5, want all", len(got))
	}
	if got := joined(many, 0.6); len(got) != 1 || got[0].Count != 1000 || got[0].Bytes != 1000 ||
		got[0].End != 999.5 {
		t.Errorf("%+v, want one span of 1000", got)
	}
}

// TestCommandsShowThePackets: a check names the records that it counts, and the workload whose messages it
// judges.
func TestCommandsShowThePackets(t *testing.T) {
	file, err := spec.Decode("test.yaml", []byte(`name: x
fabric: {topology: single-switch, params: {hosts: 2}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, size: 4KiB}
checks:
  - workload: {name: ar, correct: true}
  - packets: {drops: {at: switches, count: ">= 1"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	e := &Evidence{Out: "my results", Workloads: []Finished{{Name: "ar"}},
		Captures: []report.Capture{{File: "run.pcapng", Taps: []report.Tap{{Packets: 1}}}}}
	checks := make([]report.Check, 2)
	e.packetCommands(&checks[1], file.Checks[1].Packets,
		&verify.Result{Measured: map[string]float64{"dropped": 1}})
	e.workloadCommands(file, checks)
	for i, want := range []string{"railbed follow 'my results' --workload ar",
		`railbed decode 'my results' -Y 'railbed.verdict == "drop"' -c 20`} {
		if got := reporting.ShellLine(checks[i].Commands[0]); got != want {
			t.Errorf("check %d is shown by %s, want %s", i, got, want)
		}
	}
}
