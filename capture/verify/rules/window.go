package rules

import (
	"fmt"
	"time"

	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// timesMost bounds the times that a rule keeps over all keys.
const timesMost = 1 << 22

// windows judges the number of packets that match a filter within any window of time at a port.
type windows struct {
	*rule
	filter *display.Filter
	bound  *spec.Bound
	most   int // packets that a window may have
	keys   table[recent]
	length int64 // ns of the timestamps' time

	total, worst, kept uint64
	beyond             uint64
}

// recent is a ring of the times of the last packets of a key: as many as a window may have.
type recent struct {
	times []int64
	next  int
}

func newWindows(k *rule, f *display.Filter, b *spec.Bound) *windows {
	most := int(min(b.Limit, spec.MaxWindowCount))
	if b.Op == "<" && float64(most) == b.Limit {
		most--
	}
	k.keyer.ported, k.need.AnyOrder = true, false
	return &windows{rule: k, filter: f, bound: b, most: most, keys: newTable[recent](&k.keyer)}
}

func (w *windows) take(p *evidence.Packet) {
	r := w.keys.of(p)
	if r == nil || !w.matches(w.filter, p) {
		return
	}
	w.length = w.real(time.Duration(w.spec.Window))
	w.total++
	if w.most <= 0 {
		w.worst = 1
		if w.most < 0 || w.bound.Limit < 1 {
			w.offenders.Add(p)
		}
		return
	}
	if len(r.times) < w.most && w.kept >= timesMost {
		w.beyond++
		return
	}
	full := len(r.times) == w.most
	if full && p.Time-r.times[r.next] < w.length {
		w.offenders.Add(p)
	}
	if !full {
		r.times = append(r.times, p.Time)
		w.kept++
	} else {
		r.times[r.next] = p.Time
		r.next = (r.next + 1) % w.most
	}
	w.worst = max(w.worst, r.within(p.Time, w.length))
}

// within counts the times that are less than a length before a time.
func (r *recent) within(now, length int64) (n uint64) {
	for i := range r.times {
		newest := r.times[(r.next+len(r.times)-1-i)%len(r.times)]
		if now-newest >= length {
			break
		}
		n++
	}
	return n
}

// real returns a duration of the testbed's time in nanoseconds of timestamps.
func (k *rule) real(d time.Duration) int64 {
	return int64(clock.Dilation(k.capture.Dilation).Wait(d))
}

// passed returns nanoseconds of timestamps as a duration of the testbed's time.
func (k *rule) passed(ns int64) time.Duration {
	return clock.Dilation(k.capture.Dilation).Passed(time.Duration(ns))
}

func (w *windows) conclude(f *evidence.Finding) string {
	f.Rests = true
	if w.offenders.Count > 0 {
		line := plural.Text("%d packets came within %v of %d others before them, want %s", w.offenders.Count,
			time.Duration(w.spec.Window), max(0, w.most), w.bound)
		if w.capture.Unordered > 0 { // the packets may have come in another order
			f.Absent = append(f.Absent, line)
		} else {
			f.Wrong = append(f.Wrong, line)
		}
	}
	if w.beyond > 0 {
		f.Unclear = append(f.Unclear, plural.Text(
			"%d packets were not judged: the rule keeps at most %d packet times", w.beyond, timesMost))
	}
	many := fmt.Sprint(w.worst)
	if w.offenders.Count > 0 && w.most > 0 {
		many = fmt.Sprintf("more than %d", w.most)
	}
	return w.over(plural.Text("%d of %d packets match, %s of them within %v", w.total, w.selected, many,
		time.Duration(w.spec.Window)), len(w.keys.keys))
}
