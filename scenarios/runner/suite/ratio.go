package suite

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// ratio is the ratio of the medians of two numbers, with an interval.
type ratio struct{ value, low, high float64 }

// ratioOf returns the ratio of the medians of paired values. Its interval is the 95 % percentile bootstrap
// (Efron and Tibshirani, An Introduction to the Bootstrap, 1993), whose resamples are of pairs. With fewer
// than fewestBootstrap pairs, the interval is the range of the ratios of the pairs.
func ratioOf(own, other []float64) ratio {
	r := ratio{value: divide(median(own), median(other))}
	var all []float64
	if len(own) < fewestBootstrap {
		for i := range own {
			all = append(all, divide(own[i], other[i]))
		}
		r.low, r.high = min(r.value, slices.Min(all)), max(r.value, slices.Max(all))
		return r
	}
	draw := rand.New(rand.NewPCG(1, uint64(len(own)))) // so that the same values have the same interval
	a, b := make([]float64, len(own)), make([]float64, len(own))
	for range resamples {
		for i := range a {
			k := draw.IntN(len(own))
			a[i], b[i] = own[k], other[k]
		}
		slices.Sort(a)
		slices.Sort(b)
		all = append(all, divide(middleOf(a), middleOf(b)))
	}
	slices.Sort(all)
	tail := int(resamples * (1 - confidence) / 2)
	r.low, r.high = all[tail], all[len(all)-1-tail]
	return r
}

// median returns the median of values in any order.
func median(values []float64) float64 { return middleOf(slices.Sorted(slices.Values(values))) }

// middleOf returns the median of values in ascending order.
func middleOf(values []float64) float64 {
	return values[(len(values)-1)/2]/2 + values[len(values)/2]/2
}

// divide returns the ratio of two values. Two zeros are alike.
func divide(a, b float64) float64 {
	if a == b {
		return 1
	}
	return a / b
}

// verdict returns PASS if the whole interval satisfies the bounds, FAIL if no value in it does, and otherwise
// INCONCLUSIVE.
func (r ratio) verdict(bounds spec.Bounds) verdict.Verdict {
	v := verdict.Pass
	for _, b := range bounds {
		low, high := b.Holds(r.low), b.Holds(r.high)
		switch inside := r.low <= b.Limit && b.Limit <= r.high; {
		case low && high:
		case low || high || inside && b.Op == "==":
			v = verdict.Worst(v, verdict.Inconclusive)
		default:
			return verdict.Fail
		}
	}
	return v
}

// needed estimates how many pairs of runs would decide. The width of an interval shrinks with the square root
// of the number of runs.
func (r ratio) needed(bounds spec.Bounds, pairs int) string {
	// share is the distance from the ratio to the end of the interval, by its distance to a limit on this
	// side.
	share := 0.0
	for _, b := range bounds {
		end := r.low
		if b.Limit > r.value {
			end = r.high
		}
		if r.low <= b.Limit && b.Limit <= r.high {
			share = max(share, math.Abs(r.value-end)/math.Abs(r.value-b.Limit))
		}
	}
	more := math.Ceil(float64(pairs) * share * share)
	if math.IsNaN(more) || more > spec.MaxRepeat {
		return fmt.Sprintf("the interval has the bound in it, and more than %d pairs would be needed",
			spec.MaxRepeat)
	}
	return fmt.Sprintf("the interval has the bound in it: about %d pairs would decide",
		max(int(more), cmp.Or(pairs, 1)+1))
}
