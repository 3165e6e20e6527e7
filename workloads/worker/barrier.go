package worker

import (
	"cmp"
	"slices"
	"time"

	"railbed/workloads/rank"
)

// clockMargin is how far a rank's clock may be off if the times of an iteration are measured. It is
// short compared with an iteration.
const clockMargin = time.Millisecond

// within reports whether a rank's times lie between two moments of this host's clock, or at most
// margin outside. If they do not, the rank has another clock.
func within(d *rank.Done, released, ended time.Time, margin time.Duration) bool {
	return d.Start >= released.Add(-margin).UnixNano() &&
		d.Start+int64(d.Time) <= ended.Add(margin).UnixNano()
}

// barrier are the results of a barrier.
type barrier struct{}

// add implements Results. It counts the ranks that ended before all had begun as wrong elements. If a
// rank's times do not lie between released and ended, the rank has another clock, and add marks the
// operation as not checked.
func (barrier) add(o *Operation, dones []rank.Done, released, ended time.Time) error {
	if !o.Checked {
		return nil
	}
	begun := slices.MaxFunc(dones, func(a, b rank.Done) int {
		return cmp.Compare(a.Start, b.Start)
	}).Start
	for _, d := range dones {
		if !within(&d, released, ended, 0) {
			o.Checked = false
		}
		if d.Start+int64(d.Time) < begun {
			o.Wrong++
		}
	}
	if !o.Checked {
		o.Wrong = 0
	}
	return nil
}
