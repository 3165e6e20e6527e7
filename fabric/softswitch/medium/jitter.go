package medium

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"time"

	"railbed/plan"
	"railbed/plan/spec"
)

// jitter is the random part of a direction's delay.
type jitter struct {
	kind string
	// spread is the half width of the uniform distribution, the standard deviation of the normal
	// one, or the mean of the exponential one.
	spread time.Duration
	// tail is the share, of 2^64, that is cut off the distribution: on each side of the normal one,
	// above the exponential one. The rest is scaled up accordingly.
	tail uint64
}

const (
	normalCut      = 3 // standard deviations
	exponentialCut = 8 // means
)

// Check refuses a direction with settings that no medium supports. Uniform is the default.
func Check(d plan.Direction) error {
	switch d.JitterKind {
	case "", spec.Uniform, spec.Normal, spec.Exponential:
		return nil
	}
	return fmt.Errorf("jitter-kind is %q, want %s, %s or %s", d.JitterKind, spec.Uniform, spec.Normal,
		spec.Exponential)
}

func newJitter(d plan.Direction) jitter {
	j := jitter{kind: d.JitterKind, spread: time.Duration(d.Jitter)}
	if j.spread <= 0 {
		return jitter{}
	}
	switch j.kind {
	case spec.Normal:
		cut := min(normalCut, float64(d.Delay)/float64(d.Jitter))
		j.tail = scaled(upperNormal(cut))
	case spec.Exponential:
		j.tail = scaled(math.Exp(-exponentialCut))
	}
	return j
}

// scaled returns a share of at most a half as a fraction of 2^64.
func scaled(share float64) uint64 { return uint64(math.Ldexp(share, 64)) }

// upperNormal returns the share of the normal distribution above z deviations.
func upperNormal(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// drawn returns the time to add to the delay; it may be negative.
func (j *jitter) drawn(x uint64) time.Duration {
	switch j.kind {
	case spec.Normal:
		// The lowest bit is the sign. The other bits select a position in the upper half, from the
		// tail on.
		above, _ := bits.Mul64(x&^1, 1<<63-j.tail)
		z := times(normal().at(j.tail+above), j.spread)
		if x&1 != 0 {
			return -z
		}
		return z
	case spec.Exponential:
		above, _ := bits.Mul64(x, -j.tail) // 2^64 less the tail
		return times(exponential().at(j.tail+above), j.spread)
	}
	width, _ := bits.Mul64(x, 2*uint64(j.spread)+1)
	return time.Duration(width) - j.spread
}

// quantiles is the inverse of a distribution's upper tail: the value that is exceeded with a given
// probability, as a share of 2^64. Each octave of shares, from 2^-(k+1) to 2^-k, is divided into
// equal steps with linear interpolation. Values have 32 bits after the binary point. The relative
// error is below 10^-5.
type quantiles [octaves][steps + 1]uint64

const (
	octaves  = 16 // shares down to 2^-16; both cuts are above that
	stepBits = 8
	steps    = 1 << stepBits
)

// normal and exponential contain no draws, so all media may share them. They are computed on first
// use, because jitter is rare.
var (
	normal      = sync.OnceValue(func() *quantiles { return newQuantiles(upperNormalQuantile) })
	exponential = sync.OnceValue(func() *quantiles {
		return newQuantiles(func(share float64) float64 { return -math.Log(share) })
	})
)

func upperNormalQuantile(share float64) float64 {
	if share >= 0.5 {
		return 0 // the sign selects the lower half
	}
	return math.Sqrt2 * math.Erfcinv(2*share)
}

func newQuantiles(of func(share float64) float64) *quantiles {
	q := new(quantiles)
	for k := range q {
		for s := range q[k] {
			share := math.Ldexp(1+float64(s)/steps, -k-1)
			q[k][s] = uint64(math.Round(math.Ldexp(of(share), 32)))
		}
	}
	return q
}

// at returns the value that is exceeded with the probability share/2^64.
func (q *quantiles) at(share uint64) uint64 {
	k := bits.LeadingZeros64(share)
	if k >= octaves {
		return q[octaves-1][0]
	}
	fraction := share << (k + 1) // drops the leading one
	step := fraction >> (64 - stepBits)
	low, high := q[k][step], q[k][step+1]
	down, _ := bits.Mul64(low-high, fraction<<stepBits)
	return low - down
}

// times multiplies a value with 32 bits after the binary point by a duration.
func times(value uint64, d time.Duration) time.Duration {
	high, low := bits.Mul64(value, uint64(d))
	return time.Duration(high<<32 | low>>32)
}
