package live

import (
	"math/bits"
	"time"
)

// subBits is the resolution of a Lateness: 2^subBits parts of each power of
// two, so that a quantile is at most an eighth too high.
const subBits = 3

// Lateness is a histogram of how long after their due time frames were
// released, in real time.
type Lateness struct {
	Counts [(64 - subBits) << subBits]uint64 `json:"-"`
	Total  uint64                            `json:"total"`
	Worst  time.Duration                     `json:"worst_ns"`
}

// Add counts one frame. Nothing is early; a negative lateness counts as none.
func (l *Lateness) Add(late time.Duration) {
	late = max(late, 0)
	l.Counts[bucketOf(uint64(late))]++
	l.Total++
	l.Worst = max(l.Worst, late)
}

// bucketOf is the bucket of a value.
func bucketOf(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return (shift+1)<<subBits + int(v>>shift)&(1<<subBits-1)
}

// upper is the largest value of a bucket.
func upper(bucket int) uint64 {
	if bucket < 1<<subBits {
		return uint64(bucket)
	}
	shift := bucket>>subBits - 1
	return (uint64(1<<subBits|bucket&(1<<subBits-1))+1)<<shift - 1
}

// Quantile is the lateness that a share q of the frames did not exceed, at most
// an eighth too high; 0 without frames.
func (l *Lateness) Quantile(q float64) time.Duration {
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
