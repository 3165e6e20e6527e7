package worker

import (
	"cmp"
	"slices"
	"time"
)

// judgeBarrier counts the ranks that ended before all had begun, between two moments of this
// host's clock. A rank whose times are not between them has another clock, and then nothing is
// known.
func (o *Operation) judgeBarrier(dones []operationDone, released, ended time.Time) {
	begun := slices.MaxFunc(dones, func(a, b operationDone) int { return cmp.Compare(a.Start, b.Start) }).Start
	for _, d := range dones {
		end := d.Start + int64(d.Time)
		if d.Start < released.UnixNano() || end > ended.UnixNano() {
			o.Checked = false
		}
		if end < begun {
			o.Wrong++
		}
	}
	if !o.Checked {
		o.Wrong = 0
	}
}
