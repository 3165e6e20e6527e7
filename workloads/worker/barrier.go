package worker

import (
	"cmp"
	"slices"
	"time"
)

// clockMargin is how far a rank's clock may be off where how long things took is measured:
// little beside an iteration.
const clockMargin = time.Millisecond

// within says that a rank's times are between two moments of this host's clock, or not more
// than a margin from there: else it has another clock.
func (d *operationDone) within(released, ended time.Time, margin time.Duration) bool {
	return d.Start >= released.Add(-margin).UnixNano() &&
		d.Start+int64(d.Time) <= ended.Add(margin).UnixNano()
}

// judgeBarrier counts the ranks that ended before all had begun, between two moments of this
// host's clock. A rank whose times are not between them has another clock, and then nothing is
// known.
func (o *Operation) judgeBarrier(dones []operationDone, released, ended time.Time) {
	begun := slices.MaxFunc(dones, func(a, b operationDone) int {
		return cmp.Compare(a.Start, b.Start)
	}).Start
	for _, d := range dones {
		if !d.within(released, ended, 0) {
			o.Checked = false
		}
		if d.Start+int64(d.Time) < begun {
			o.Wrong++
		}
	}
	if !o.Checked {
		o.Wrong = 0
	}
}
