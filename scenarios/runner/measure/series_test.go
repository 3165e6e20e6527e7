package measure

import (
	"slices"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/internal/clock"
)

// lines feeds a history with samples at given times and returns the time line of the first direction, of
// seconds of a clock that starts with the samples.
func lines(t *testing.T, at func(i int) time.Duration, states ...fabric.LinkState) *report.Series {
	t.Helper()
	c := clock.New(1)
	s := &Sampler{}
	for i, l := range states {
		s.add(c.Epoch().Add(at(i)), 0, []fabric.LinkState{l}, cpuTime{})
	}
	made := s.Series(s.rates(), c)
	if made == nil || len(made.Links) != 1 || made.Source != report.CountersSource {
		t.Fatalf("%+v, want one direction, of counters", made)
	}
	return made
}

// TestBytesAreSpreadBetweenSamples: 100,000 bytes between samples 400 ms apart are 1 Mbit/s in each of the
// two intervals that they cover.
func TestBytesAreSpreadBetweenSamples(t *testing.T) {
	s := lines(t, func(i int) time.Duration { return time.Duration(i) * 2 * sampleInterval },
		state(0, 0), state(50_000, 7000), state(50_000, 0), state(150_000, 0))
	l := &s.Links[0]
	if want := []uint64{1e6, 1e6, 0, 0, 2e6, 2e6}; !slices.Equal(l.Bits, want) ||
		!slices.Equal(l.Depth, []uint64{0, 7000, 0, 0, 0, 0}) || s.Interval != 0.2 {
		t.Errorf("%+v of %v s, want bits %v and a depth of 7000 in the second interval", l, s.Interval, want)
	}
	if l.Marks != nil || l.Drops != nil || l.Again != nil {
		t.Errorf("%+v has lists of zeros", l)
	}
}

// TestLongRunsHaveLongerIntervals: however long a run, its time lines have at most report.SeriesPoints values
// and keep every byte.
func TestLongRunsHaveLongerIntervals(t *testing.T) {
	var states []fabric.LinkState
	const samples = 3*report.SeriesPoints + 2
	for i := range samples {
		states = append(states, state(uint64(i)*1000, uint64(i)))
	}
	s := lines(t, func(i int) time.Duration { return time.Duration(i) * sampleInterval }, states...)
	l := &s.Links[0]
	bits := 0.0
	for _, b := range l.Bits {
		bits += float64(b) * s.Interval
	}
	if want := 8.0 * 1000 * (samples - 1); bits < 0.999*want || bits > 1.001*want ||
		len(l.Bits) > report.SeriesPoints || s.Interval != 0.8 || slices.Max(l.Depth) != samples-1 {
		t.Errorf("%v bits in %d intervals of %v s, at most %d deep; want %v bits in intervals of 0.8 s, "+
			"%d deep", bits,
			len(l.Bits), s.Interval, slices.Max(l.Depth), want, samples-1)
	}
}
