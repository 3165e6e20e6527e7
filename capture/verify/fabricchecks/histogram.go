package fabricchecks

import "math/bits"

// histogram counts numbers in buckets: each power of two has 2^histogramSub of them.
type histogram struct {
	counts [histogramBuckets]uint64
	total  uint64
	most   uint64
}

const (
	histogramSub     = 5
	histogramBuckets = (64 - histogramSub) << histogramSub
)

func (h *histogram) add(v uint64) {
	h.counts[histogramBucket(v)]++
	h.total++
	h.most = max(h.most, v)
}

func histogramBucket(v uint64) int {
	if v < 1<<histogramSub {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - histogramSub
	return (shift+1)<<histogramSub + int(v>>shift)&(1<<histogramSub-1)
}

// quantile returns the number that a share of the numbers did not exceed. It is at most 1/32 too high.
func (h *histogram) quantile(q float64) uint64 {
	want, seen := q*float64(h.total), uint64(0)
	for i, n := range h.counts {
		if seen += n; n > 0 && float64(seen) >= want {
			if i < 1<<histogramSub {
				return uint64(i)
			}
			shift := i>>histogramSub - 1
			return min(h.most, (uint64(1<<histogramSub|i&(1<<histogramSub-1))+1)<<shift-1)
		}
	}
	return 0
}
