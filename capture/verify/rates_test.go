package verify

import (
	"fmt"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestRateLimits sets a link's configured rate so that the carried rate is off by exactly a share.
// Kernel switches do not record queue lengths, so a rate that is too low is not a violation.
func TestRateLimits(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  verdict.Verdict
		level string
	}{
		// Of 1,000 frames in an interval one may be too many, and three a burst.
		{-0.5, pass, Faithful}, {0.033, pass, Faithful}, {0.036, fail, Degraded}, {0.102, fail, Degraded},
		{0.106, verdict.Overloaded, Overloaded},
	} {
		check := NewFidelity(Faithful, HostLoad{-1, -1})
		s, _ := rateScene(t, verifytest.ClusterFile, c.share, "")
		results, _ := s.Run(check)
		if results[0].Verdict != c.want || check.Level() != c.level {
			t.Errorf("%+.1f%%: %s, want %s: %v", c.share*100, check.Level(), c.level, results[0])
		}
	}
}

// TestSoftRateLimits is the same test for a soft switch's port, which records queue lengths. While
// the port is busy, a rate that is too low is as wrong as one too high.
func TestSoftRateLimits(t *testing.T) {
	file := strings.Replace(verifytest.ClusterFile, "  links:", "  switch: {kind: soft}\n  links:", 1)
	const waits, empty = "railbed depth=3000 late=10ns", "railbed depth=0 late=10ns"
	for name, c := range map[string]struct {
		share   float64
		comment string
		paused  bool
		want    verdict.Verdict
	}{
		"as asked":              {0, waits, false, pass},
		"a little less":         {-0.028, waits, false, pass},
		"less":                  {-0.034, waits, false, fail},
		"much less":             {-0.2, waits, false, verdict.Overloaded},
		"much less, and paused": {-0.2, waits, true, pass},
		"nothing more to send":  {-0.2, empty, false, pass},
		"more":                  {0.05, waits, false, fail},
		"nothing is said":       {-0.2, "", false, pass},
	} {
		s, tap := rateScene(t, file, c.share, c.comment)
		if c.paused { // and never told to go on
			at, _ := (&evidence.Capture{Plan: s.Plan}).Interface(spec.SplitPort(tap))
			s.Pause(at.Peer, verifytest.Start+1, 100)
		}
		results, _ := s.Run(NewFidelity(Faithful, HostLoad{-1, -1}))
		if results[0].Verdict != c.want {
			t.Errorf("%s: %v, want %s", name, results[0], c.want)
		}
	}
}

// TestRateBetweenPauses: a link that carries bursts, as between the steps of a
// collective, is judged by the bursts, whatever the pauses.
func TestRateBetweenPauses(t *testing.T) {
	file := strings.Replace(verifytest.ClusterFile, "  links:", "  switch: {kind: soft}\n  links:", 1)
	const burst, every = int64(10_000_000), int64(200_000)
	for name, c := range map[string]struct {
		share float64
		pause int64 // after each burst
		late  int64 // of the first frame of each
		want  verdict.Verdict
	}{
		"as asked":            {0, 5_000_000, 0, pass},
		"long pauses":         {0, 25_000_000, 0, pass},
		"a first one is late": {0, 5_000_000, 900_000, pass},
		"less":                {-0.05, 5_000_000, 0, fail},
		"much less":           {-0.2, 5_000_000, 0, verdict.Overloaded},
		"much more":           {0.2, 5_000_000, 0, verdict.Overloaded},
		"hardly ever busy":    {-0.2, 500_000_000, 0, pass},
	} {
		s, _ := rateScene(t, file, c.share, "")
		frames := s.Sightings
		s.Sightings = nil
		at := verifytest.Start
		for i, f := range frames[:5000] {
			f.Time, f.Comment = at, "railbed depth=3000 late=0ns"
			at += every
			switch n := int64(i) % (burst / every); n {
			case 0:
				f.Time += c.late
				f.Comment = fmt.Sprintf("railbed depth=3000 late=%dns", c.late)
			case burst/every - 1:
				f.Comment = "railbed depth=0 late=0ns"
				at += c.pause
			}
			s.Sightings = append(s.Sightings, f)
		}
		s.Now = at
		if results, _ := s.Run(NewFidelity(Faithful, HostLoad{-1, -1})); results[0].Verdict != c.want {
			t.Errorf("%s: %v, want %s", name, results[0], c.want)
		}
	}
}

// rateScene is a capture of a second in which the first switch's first port sends
// at a steady rate, which is off by a share from the asked one.
func rateScene(t *testing.T, file string, share float64, comment string) (s *verifytest.Scene, tap string) {
	s = verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, file)
	s.Ring(4)
	link := &s.Plan.Links[0]
	end := link.B
	if s.Plan.Switch(end.Node) == nil {
		end = link.A
	}
	tap = end.Node + ":" + end.Port
	frame := s.Of(s.Packet(tap, true), tap, true).Frame
	s.Sightings = nil
	const every = int64(200_000) // 1,000 frames in an interval
	rate := float64(len(frame)) * 8 / (float64(every) / 1e9)
	link.AToB.Rate, link.BToA.Rate = units.Rate(rate/(1+share)), units.Rate(rate/(1+share))
	for at := verifytest.Start; at < verifytest.Start+1_300_000_000; at += every {
		s.IDs++
		s.Sightings = append(s.Sightings,
			verifytest.Sighting{Tap: tap, Out: true, Time: at, ID: s.IDs, Frame: frame, Length: len(frame),
				Comment: comment})
	}
	s.Now = verifytest.Start + 1_300_000_000
	return s, tap
}

// TestRatesBesideFaults: the arrivals of a direction at which a fault copies packets, or whose link copies
// them, say nothing about the rate at which its port sent. The same arrivals without the fault are too fast.
func TestRatesBesideFaults(t *testing.T) {
	soft := strings.Replace(verifytest.ClusterFile, "  links:", "  switch: {kind: soft}\n  links:", 1)
	for name, c := range map[string]struct {
		record string // of the fault at the sender
		steps  string // of the file
		link   bool   // the link duplicates
		want   verdict.Verdict
	}{
		"no fault":            {want: verdict.Overloaded},
		"records of a fault":  {record: "railbed verdict=duplicate reason=fault name=twice", want: pass},
		"the fault of a file": {steps: "fault: {where: all, duplicate: {every: 2}}", want: unclear},
		"a fault that copies nothing": {steps: "fault: {where: all, corrupt: {every: 2}}",
			want: verdict.Overloaded},
		"another port's fault": {steps: "fault: {where: spine1, duplicate: {every: 2}}",
			want: verdict.Overloaded},
		"a fault of a node": {steps: "fault: {where: h0, hang: true, for: 1s}",
			want: verdict.Overloaded},
		"a change of the link":    {steps: "link: {where: '*', set: {duplicate: 50%}}", want: pass},
		"the setting of the link": {link: true, want: pass},
	} {
		s, out := rateScene(t, soft, 0, "")
		at, _ := (&evidence.Capture{Plan: s.Plan}).Interface(spec.SplitPort(out))
		nic := at.Peer
		frames := s.Sightings
		s.Sightings = nil
		for _, f := range frames {
			f.Comment = "railbed late=0ns"
			f.Out = false
			again := f
			s.IDs++
			again.ID, again.Time = s.IDs, f.Time+1
			if s.Hits = c.record != ""; s.Hits { // the copy keeps the packet's id
				hit := f
				hit.Tap, hit.Time, hit.Comment, hit.Record = nic, f.Time-1, c.record, true
				again.ID = f.ID
				s.Sightings = append(s.Sightings, hit)
			}
			s.Sightings = append(s.Sightings, f, again)
		}
		if c.link {
			s.Plan.Links[0].AToB.Duplicate = units.Ratio{Num: 1, Den: 2}
			s.Plan.Links[0].BToA.Duplicate = units.Ratio{Num: 1, Den: 2}
		}
		check := NewFidelity(Faithful, HostLoad{-1, -1})
		if c.steps != "" {
			file, err := spec.Decode("x.yaml", []byte(soft+"steps:\n- "+c.steps+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			check.Except(file, s.Plan)
		}
		if results, _ := s.Run(check); results[0].Verdict != c.want {
			t.Errorf("%s: %v, want %s", name, results[0], c.want)
		}
	}
}

// TestPeakOfShortBursts: a link that carries its rate for 20 ms of a second has its rate as its peak,
// although it carries little over 200 ms.
func TestPeakOfShortBursts(t *testing.T) {
	file := strings.Replace(verifytest.ClusterFile, "  links:", "  switch: {kind: soft}\n  links:", 1)
	s, _ := rateScene(t, file, 0, "railbed depth=0 late=0ns")
	s.Sightings = s.Sightings[:100] // of 200 us
	s.Now = s.Sightings[99].Time + 1_000_000_000
	check := NewFidelity(Faithful, HostLoad{-1, -1})
	s.Run(check)
	rates, _ := check.Rates()
	if len(rates) != 1 || rates[0].Busiest > 0.2*float64(rates[0].Asked) ||
		rates[0].Peak < 0.97*float64(rates[0].Asked) || rates[0].Peak > float64(rates[0].Asked) {
		t.Errorf("%+v, want a peak of the asked rate", rates)
	}
}
