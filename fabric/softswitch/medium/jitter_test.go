package medium

import (
	"hash/fnv"
	"math"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// delays are the delays of packets that are too far apart to meet.
func delays(d plan.Direction, n int) []float64 {
	m := New(d, 21)
	all := make([]float64, n)
	for i := range all {
		sent := clock.Time(i) * 1e9
		all[i] = float64(m.Send(sent, &packet.Packet{Flow: 4, Ordinal: uint64(i + 1)}).At - sent)
	}
	return all
}

// TestJitterDistributions compares delays with the distributions that the plan documents, by
// Kolmogorov and Smirnov. The largest distance of the two distribution functions is under
// 1.95/sqrt(n), except once in 1,000. The draws repeat, so that this is decided once and for all.
func TestJitterDistributions(t *testing.T) {
	const n = 200_000
	phi := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	cutNormal := func(cut float64) func(z float64) float64 {
		return func(z float64) float64 { return (phi(z) - phi(-cut)) / (phi(cut) - phi(-cut)) }
	}
	const delay, jitter = 1e6, 1e5
	for _, c := range []struct {
		kind          string
		delay, jitter float64
		below         func(x float64) float64 // of (delay - Delay) / Jitter
		least, most   float64
	}{
		{"", delay, jitter, func(x float64) float64 { return (x + 1) / 2 }, -1, 1},
		{spec.Uniform, delay, jitter, func(x float64) float64 { return (x + 1) / 2 }, -1, 1},
		{spec.Normal, delay, jitter, cutNormal(3), -3, 3},
		{spec.Normal, 1e5, 1e5, cutNormal(1), -1, 1}, // never before it was sent
		{spec.Normal, 1e5, 2e5, cutNormal(0.5), -0.5, 0.5},
		{spec.Exponential, delay, jitter, func(x float64) float64 {
			return (1 - math.Exp(-x)) / (1 - math.Exp(-8))
		}, 0, 8},
		{spec.Exponential, 0, jitter, func(x float64) float64 {
			return (1 - math.Exp(-x)) / (1 - math.Exp(-8))
		}, 0, 8},
	} {
		all := delays(plan.Direction{Rate: 1e9, JitterKind: c.kind, Delay: units.Duration(c.delay),
			Jitter: units.Duration(c.jitter)}, n)
		slices.Sort(all)
		distance := 0.0
		for i, d := range all {
			f := c.below((d - c.delay) / c.jitter)
			distance = max(distance, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
		}
		if distance > 1.95/math.Sqrt(n) {
			t.Errorf("%q with %.0f +- %.0f: distance %.5f, want at most %.5f", c.kind, c.delay, c.jitter,
				distance, 1.95/math.Sqrt(n))
		}
		low, high := (all[0]-c.delay)/c.jitter, (all[n-1]-c.delay)/c.jitter
		if low < c.least || high > c.most || low > c.least+(c.most-c.least)/4 ||
			high < c.most-(c.most-c.least)/4 {
			t.Errorf("%q with %.0f +- %.0f: from %.3f to %.3f, want %.1f to %.1f", c.kind, c.delay, c.jitter,
				low, high, c.least, c.most)
		}
	}
}

// TestJitterMoments: the normal distribution cut at three deviations keeps its mean, and has
// 0.98658 of its deviation (sqrt(1 - 2*3*phi(3)/(2*Phi(3)-1))). Neighbours are independent.
func TestJitterMoments(t *testing.T) {
	const n = 200_000
	all := delays(plan.Direction{Rate: 1e9, JitterKind: spec.Normal, Delay: 1e6, Jitter: 1e5}, n)
	sum, squares, products := 0.0, 0.0, 0.0
	for i, d := range all {
		z := (d - 1e6) / 1e5
		sum += z
		squares += z * z
		if i > 0 {
			products += z * (all[i-1] - 1e6) / 1e5
		}
	}
	limit := 5 / math.Sqrt(n)
	if mean, deviation, lag := sum/n, math.Sqrt(squares/n),
		products/n; math.Abs(mean) > limit || math.Abs(deviation-0.98658) > limit || math.Abs(lag) > limit {
		t.Errorf("mean %.4f, deviation %.4f, correlation %.4f, want 0, 0.9866, 0 within %.4f", mean,
			deviation, lag, limit)
	}
}

// TestQuantiles holds the tables to published ones: the normal distribution's
// upper quantiles (Abramowitz and Stegun, table 26.5) and logarithms.
func TestQuantiles(t *testing.T) {
	for share, want := range map[float64]float64{0.25: 0.67449, 0.1: 1.28155, 0.05: 1.64485, 0.025: 1.95996,
		0.01: 2.32635, 0.005: 2.57583, 0.002: 2.87816} {
		if got := math.Ldexp(float64(normal().at(scaled(share))), -32); math.Abs(got-want) > 2e-5 {
			t.Errorf("normal quantile of %v: %.5f, want %.5f", share, got, want)
		}
	}
	for share, want := range map[float64]float64{0.5: 0.693147, 0.1: 2.302585, 0.01: 4.605170,
		0.001: 6.907755} {
		if got := math.Ldexp(float64(exponential().at(scaled(share))), -32); math.Abs(got-want) > 1e-5 {
			t.Errorf("exponential quantile of %v: %.6f, want %.6f", share, got, want)
		}
	}
}

// TestTablesAreTheSameEverywhere pins the tables, which are computed with
// floating point: a machine that rounds otherwise draws other delays.
func TestTablesAreTheSameEverywhere(t *testing.T) {
	for name, c := range map[string]struct {
		table *quantiles
		want  uint64
	}{"normal": {normal(), normalTable}, "exponential": {exponential(), exponentialTable}} {
		h := fnv.New64a()
		for _, octave := range c.table {
			for _, v := range octave {
				for b := range 8 {
					h.Write([]byte{byte(v >> (8 * b))})
				}
			}
		}
		if got := h.Sum64(); got != c.want {
			t.Errorf("the %s table's hash is %#x, want %#x", name, got, c.want)
		}
	}
}

// TestJitterKeepsOrder sends packets closer together than the jitter: none
// overtakes another.
func TestJitterKeepsOrder(t *testing.T) {
	for _, kind := range []string{spec.Uniform, spec.Normal, spec.Exponential} {
		m := New(plan.Direction{Rate: 1e9, JitterKind: kind, Delay: 1e5, Jitter: 1e5}, 5)
		last, waited := clock.Time(0), 0
		for i := range 100_000 {
			sent := clock.Time(i) * 1000
			at := m.Send(sent, &packet.Packet{Flow: uint64(i % 7), Ordinal: uint64(i/7 + 1)}).At
			if at < last || at < sent {
				t.Fatalf("%s: packet %d, sent at %d, arrives at %d, its predecessor at %d", kind, i, sent, at,
					last)
			}
			if at == last {
				waited++
			}
			last = at
		}
		if waited < 50_000 {
			t.Errorf("%s: only %d packets waited for another: nothing was tried", kind, waited)
		}
	}
}

func TestJitterOfHours(t *testing.T) {
	j := newJitter(plan.Direction{JitterKind: spec.Exponential, Jitter: units.Duration(100 * time.Hour)})
	if got := j.drawn(0); got < 799*time.Hour || got > 800*time.Hour+time.Second {
		t.Errorf("the largest of a mean of 100 h is %s", got)
	}
}
