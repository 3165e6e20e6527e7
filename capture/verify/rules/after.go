package rules

import (
	"fmt"
	"slices"
	"time"

	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
)

// waitingMost bounds the packets that wait for the packet that must follow.
const waitingMost = 1 << 16

// after judges whether each packet of one filter is followed, at the same port and within a time, by a
// packet of another filter with the same values of fields.
type after struct {
	*rule
	filter, expect *display.Filter
	same           [][2]*display.Field

	// queue holds the waiting packets in the order of their times, and waiting those of each key.
	queue   []*waiter
	waiting map[string][]*waiter
	open    int
	key     []byte

	first, followed, late, forgotten uint64
	longest                          int64
	// short counts the packets that the end of the capture left waiting.
	short uint64
}

// waiter is a packet that waits for the packet that must follow.
type waiter struct {
	held     evidence.Held
	time     int64
	key      string
	followed bool
}

func newAfter(k *rule, p parts) *after {
	k.need.AnyOrder = false
	return &after{rule: k, filter: p.filter, expect: p.expect, same: p.same, waiting: map[string][]*waiter{}}
}

func (a *after) take(p *evidence.Packet) {
	a.expire(p.Time)
	if a.matches(a.expect, p) && a.values(p, 1) {
		for _, w := range a.waiting[string(a.key)] {
			w.followed = true
			a.followed++
			a.open--
			a.longest = max(a.longest, p.Time-w.time)
			a.offenders.Release(w.held)
		}
		delete(a.waiting, string(a.key))
	}
	if !a.times.Has(p.Time) || !a.matches(a.filter, p) {
		return
	}
	if a.first++; !a.values(p, 0) {
		a.late++
		a.offenders.Add(p) // without the fields nothing can follow it
		return
	}
	if a.compact(); len(a.queue) >= waitingMost {
		a.forgotten++
		return
	}
	a.open++
	w := &waiter{held: a.offenders.Hold(p), time: p.Time, key: string(a.key)}
	a.queue = append(a.queue, w)
	a.waiting[w.key] = append(a.waiting[w.key], w)
}

// values sets the key to the port and the values of the fields: of the first packet (0) or of the packet
// that follows (1). It reports whether the packet has all fields.
func (a *after) values(p *evidence.Packet, which int) (all bool) {
	a.key = fmt.Appendf(a.key[:0], "%d ", p.Tap.Index)
	for _, fields := range a.same {
		var has bool
		var unseen display.Unseen
		a.key, has, unseen = fields[which].AppendKey(p.Display(), a.key)
		a.doubts.Add(p, unseen)
		if !has {
			return false
		}
	}
	return true
}

// compact removes the packets that were followed, if the queue is full and most of them were.
func (a *after) compact() {
	if len(a.queue) >= waitingMost && a.open < waitingMost/2 {
		a.queue = slices.DeleteFunc(a.queue, func(w *waiter) bool { return w.followed })
	}
}

// expire takes the packets whose time is over from the queue. A packet that follows exactly at the end of
// the time is within it.
func (a *after) expire(now int64) {
	most := a.real(time.Duration(a.spec.Within))
	for len(a.queue) > 0 {
		w := a.queue[0]
		if !w.followed {
			if now-w.time <= most {
				return
			}
			a.miss(w)
			if rest := a.waiting[w.key][1:]; len(rest) > 0 {
				a.waiting[w.key] = rest
			} else {
				delete(a.waiting, w.key)
			}
		}
		a.queue[0], a.queue = nil, a.queue[1:]
	}
}

// miss counts a packet that nothing followed in time.
func (a *after) miss(w *waiter) {
	a.late++
	a.open--
	a.offenders.AddHeld(w.held)
	a.offenders.Release(w.held)
}

func (a *after) conclude(f *evidence.Finding) string {
	f.Rests = true
	for _, w := range a.queue {
		switch {
		case w.followed:
		case a.capture.EndOf(w.held.Tap)-w.time > a.real(time.Duration(a.spec.Within)):
			a.miss(w)
		default:
			a.short++
		}
	}
	if a.late > 0 {
		f.Absent = append(f.Absent, plural.Text("nothing followed %d packets within %v", a.late,
			time.Duration(a.spec.Within)))
	}
	if a.short > 0 {
		f.Unclear = append(f.Unclear, plural.Text("the capture ended less than %v after %d packets that "+
			"nothing had followed", time.Duration(a.spec.Within), a.short))
	}
	if a.forgotten > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d packets were not judged: at most %d can wait at a time",
			a.forgotten, waitingMost))
	}
	if a.selected > 0 && a.first == 0 {
		f.Unclear = append(f.Unclear, fmt.Sprintf("no packet matches %q", a.filter))
	}
	return plural.Text("%d of %d packets were followed, the slowest after %v", a.followed, a.first,
		a.passed(a.longest))
}
