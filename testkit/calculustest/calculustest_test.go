package calculustest

import (
	"math"
	"math/rand/v2"
	"testing"

	"railbed/internal/clock"
)

// TestBurst: of three packets of 100 bytes, the last two a tenth of a second apart.
func TestBurst(t *testing.T) {
	var trace Trace
	trace.Add(0, 100)
	trace.Add(clock.Time(10e9), 100)
	trace.Add(clock.Time(10.1e9), 100)
	for rate, want := range map[float64]float64{0: 300, 10: 199, 100: 190, 500: 150, 1e4: 100} {
		if got := trace.Burst(rate); math.Abs(got-want) > 1e-6 {
			t.Errorf("at %v bytes/s the burst is %v, want %v", rate, got, want)
		}
	}
}

// TestSource: a source keeps to its curve, and uses it.
func TestSource(t *testing.T) {
	arrivals := Source(rand.New(rand.NewPCG(1, 2)), 10e3, 1e6, 2000, 64, 1000, 1500)
	var trace Trace
	for _, a := range arrivals {
		trace.Add(a.At, int64(a.Bytes))
	}
	if got := trace.Burst(1e6); got > 10e3+1e-3 || got < 9.9e3 {
		t.Errorf("the burst is %v, want 10,000", got)
	}
}
