package live

import (
	"math/bits"
	"time"
)

// subBits is the resolution of a Lateness: each power of two has 2^subBits buckets, so a quantile
// is at most an eighth too high.
const subBits = 3

// lateness is a histogram of frames by lateness: the real time from a frame's due time to its
// release or arrival.
type lateness struct {
	Counts [(64 - subBits) << subBits]uint64
	Total  uint64
	Sum    time.Duration
	Worst  time.Duration
}

// Add counts one frame. A negative lateness counts as 0.
func (l *lateness) Add(late time.Duration) {
	late = max(late, 0)
	l.Counts[bucketOf(uint64(late))]++
	l.Total++
	l.Sum += late
	l.Worst = max(l.Worst, late)
}

// bucketOf returns the bucket of a value.
func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return (shift+1)<<subBits + int(v>>shift)&(1<<subBits-1)
}

// upper returns the largest value of a bucket.
func upper(bucket int) uint64 {
	if bucket < 1<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	return (uint64(1<<subBits|bucket&(1<<subBits-1))+1)<<shift - 1
}

// Quantile returns the lateness that a share q of the frames did not exceed, at most an eighth too
// high. It is 0 without frames.
func (l *lateness) Quantile(q float64) time.Duration {
	want := uint64(q * float64(l.Total))
	var seen uint64
	for i, n := range l.Counts {
		seen += n
		if n > 0 && seen > want || seen > 0 && seen >= l.Total {
			return min(time.Duration(upper(i)), l.Worst)
		}
	}
	return 0
}

// Quantiles summarise a Lateness.
type Quantiles struct {
	Frames uint64        `json:"frames"`
	Sum    time.Duration `json:"sum_ns"`
	P50    time.Duration `json:"p50_ns"`
	P99    time.Duration `json:"p99_ns"`
	Worst  time.Duration `json:"worst_ns"`
}

// Quantiles returns the summary.
func (l *lateness) Quantiles() Quantiles {
	return Quantiles{Frames: l.Total, Sum: l.Sum, P50: l.Quantile(0.5), P99: l.Quantile(0.99), Worst: l.Worst}
}

// Histogram is a Lateness with fewer buckets, for display.
type Histogram struct {
	Quantiles
	// Counts has for each of Bounds the number of frames that were less late. It is empty without
	// frames. Frames beyond the last bound are only in Frames, which counts all.
	Counts []uint64 `json:"counts,omitempty"`
}

// Histogram returns the histogram by Bounds.
func (l *lateness) Histogram() Histogram {
	h := Histogram{Quantiles: l.Quantiles()}
	if l.Total > 0 {
		h.Counts = l.Cumulative()
	}
	return h
}

// Bounds of Cumulative: powers of two from 1 us to 1 s, where a microsecond is 1,024 ns.
const (
	firstBound = 10
	lastBound  = 30
)

// Bounds returns the upper bounds of Cumulative, in order.
func Bounds() []time.Duration {
	var bounds []time.Duration
	for bits := firstBound; bits <= lastBound; bits++ {
		bounds = append(bounds, 1<<bits)
	}
	return bounds
}

// Cumulative returns for each of Bounds the number of frames that were less late.
func (l *lateness) Cumulative() []uint64 {
	counts := make([]uint64, 0, lastBound-firstBound+1)
	var seen uint64
	bucket := 0
	for bits := firstBound; bits <= lastBound; bits++ {
		for end := bucketOf(1 << bits); bucket < end; bucket++ {
			seen += l.Counts[bucket]
		}
		counts = append(counts, seen)
	}
	return counts
}
