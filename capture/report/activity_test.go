package report

import (
	"slices"
	"testing"
)

// TestDistributionIsOfNearestRanks: of the times 1 to 2000, a share s is at most the s*2000th.
func TestDistributionIsOfNearestRanks(t *testing.T) {
	var times []float64
	for i := range 2000 {
		times = append(times, float64((i*7919)%2000+1))
	}
	d := NewDistribution("ar", "message", RanksSource, times)
	for share, want := range map[float64]float64{0.01: 20, 0.5: 1000, 0.9: 1800, 0.99: 1980, 0.999: 1998,
		1: 2000} {
		if got := d.At(share); got != want {
			t.Errorf("a share of %v took at most %v, want %v", share, got, want)
		}
	}
	if d.Count != 2000 || len(d.Times) > distributionPoints+2 || !slices.IsSorted(d.Shares) {
		t.Errorf("%d times in %d points at %v", d.Count, len(d.Times), d.Shares)
	}
	if d := NewDistribution("ar", "operation", RanksSource, []float64{3}); d.At(0.5) != 3 || d.At(1) != 3 {
		t.Errorf("one time gives %+v", d)
	}
	if d := NewDistribution("ar", "operation", RanksSource, nil); len(d.Times) > 0 || d.At(0.5) != 0 {
		t.Errorf("no time gives %+v", d)
	}
}
