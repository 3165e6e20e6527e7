package nodefault

import (
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// TestDriftOfClocks: the kernel gets a drift in two parts. The second is within its limit of 500 ppm.
func TestDriftOfClocks(t *testing.T) {
	for drift, want := range map[units.Drift][2]int64{
		100_000: {10_001, 0}, -500: {10_000, -32_768}, 1: {10_000, 66}, 149_999: {10_001, 3_276_734},
		spec.MaxDrift: {11_000, 0}, -spec.MaxDrift: {9_000, 0}, -30_050_000: {9_699, 3_276_800},
	} {
		change := timexOf(drift)
		if got := [2]int64{change.Tick, change.Freq}; got != want {
			t.Errorf("%s: tick and frequency %v, want %v", drift, got, want)
		}
		if got := driftOf(&change); got != drift {
			t.Errorf("%s reads as %s", drift, got)
		}
	}
	const decade = 10 * 365 * 24 * time.Hour
	for _, test := range []struct {
		drift      units.Drift
		over, want time.Duration
	}{
		{100_000, time.Second, 100 * time.Microsecond},
		{-100_000, 1500 * time.Millisecond, -150 * time.Microsecond},
		{spec.MaxDrift, decade, decade / 10}, {7, 100 * time.Millisecond, 0},
	} {
		if got := driftOver(test.drift, test.over); got != test.want {
			t.Errorf("%s over %v is %v, want %v", test.drift, test.over, got, test.want)
		}
	}
}
