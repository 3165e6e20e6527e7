package suite

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/aclements/go-moremath/stats"
)

// Summary describes the values of a number in the runs of a cell. All fields are 0 if no run has the number.
type Summary struct {
	// Runs is the number of runs that have the number.
	Runs int `json:"runs"`
	// Least, P25, Median, P75 and Most are quantiles: R's type 8, which hardly depends on the distribution
	// (Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996).
	Least  float64 `json:"min"`
	P25    float64 `json:"p25"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	Most   float64 `json:"max"`
	// Low and High bound the 95 % confidence interval of the median, by the percentile bootstrap (Efron and
	// Tibshirani, An Introduction to the Bootstrap, 1993). They are absent with fewer than 5 runs.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Variation is the coefficient of variation: the standard deviation by the mean. It is absent with one
	// run, or if the mean is 0.
	Variation *float64 `json:"cv,omitempty"`

	// values are the values in ascending order, and byRun the same by the index of the cell's run.
	values []float64
	byRun  map[int]float64
}

// summarise summarises values in ascending order.
func summarise(values []float64) Summary {
	s := Summary{Runs: len(values), values: values}
	if s.Runs == 0 {
		return s
	}
	sample := stats.Sample{Xs: values, Sorted: true}
	s.Least, s.Most = values[0], values[len(values)-1]
	s.P25, s.Median, s.P75 = sample.Quantile(0.25), sample.Quantile(0.5), sample.Quantile(0.75)
	if mean := sample.Mean(); s.Runs > 1 && mean != 0 {
		if variation := sample.StdDev() / math.Abs(mean); !math.IsInf(variation, 0) {
			s.Variation = &variation
		}
	}
	if s.Runs >= fewestBootstrap {
		low, high := bootstrap(values)
		s.Low, s.High = &low, &high
	}
	return s
}

const (
	// fewestBootstrap is the number of values below which resampling is no estimate of the median's spread:
	// of 4 values there are only 35 different resamples.
	fewestBootstrap = 5
	resamples       = 10000
	confidence      = 0.95
)

// middle is the two middle values of a resample, by their indexes among the sorted values. They are the
// same if the number of values is odd. times is the number of resamples that have them.
type middle struct{ low, high, times int }

// middles has the resamples of each number of values. The resamples have one seed, so that the same values
// have the same interval.
var middles sync.Map // of []middle by int

// resampled draws the resamples of n values.
func resampled(n int) []middle {
	if known, ok := middles.Load(n); ok {
		return known.([]middle)
	}
	draw := rand.New(rand.NewPCG(1, uint64(n)))
	counts := map[[2]int]int{}
	resample := make([]int, n)
	for range resamples {
		for i := range resample {
			resample[i] = draw.IntN(n)
		}
		slices.Sort(resample)
		counts[[2]int{resample[(n-1)/2], resample[n/2]}]++
	}
	var all []middle
	for pair, times := range counts {
		all = append(all, middle{pair[0], pair[1], times})
	}
	slices.SortFunc(all, func(a, b middle) int { return cmp.Or(a.low-b.low, a.high-b.high) })
	middles.Store(n, all)
	return all
}

// bootstrap returns the bounds of the median's confidence interval, of values in ascending order: the
// medians of resamples have a share of 0.95 between them.
func bootstrap(values []float64) (low, high float64) {
	type median struct {
		value float64
		times int
	}
	var medians []median
	for _, m := range resampled(len(values)) {
		medians = append(medians, median{values[m.low]/2 + values[m.high]/2, m.times})
	}
	slices.SortFunc(medians, func(a, b median) int { return cmp.Compare(a.value, b.value) })
	low, high = medians[0].value, medians[len(medians)-1].value
	below := 0
	for _, m := range medians {
		if before := below; float64(before) <= resamples*(1-confidence)/2 {
			low = m.value
		}
		below += m.times
		if float64(below) >= resamples*(1+confidence)/2 {
			return low, m.value
		}
	}
	return low, high
}
