package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/internal/verdict"
)

// Active is a time in which a step or its fault was active, in nanoseconds since 1970. It became active
// between Begun and From, and ended between To and Ended. If it lasted to the end of the run, To and Ended
// are math.MaxInt64.
type Active struct{ Begun, From, To, Ended int64 }

// Times selects packets by their times: during a step or a fault, or outside of it. A packet in the moments
// in which the step began or ended is in neither selection. A nil Times selects every packet.
type Times struct {
	title   string // "during fault-1"
	outside bool
	// spans are apart and in order: those that are selected or, with outside, those that are not.
	spans []span
	never string // the reason why there are none
}

// NewTimes makes a selection. If the step was never active, never is the reason, and the selection proves
// nothing.
func NewTimes(title string, outside bool, active []Active, never string) *Times {
	t := &Times{title: title, outside: outside, never: never}
	for _, a := range active {
		one := span{a.From, a.To}
		if outside {
			one = span{a.Begun, a.Ended}
		}
		if one.from < one.to {
			t.spans = append(t.spans, one)
		}
	}
	if t.spans = merged(t.spans); len(t.spans) == 0 && t.never == "" {
		t.never = "it was active for no time"
	}
	return t
}

// Has reports whether a time is selected.
func (t *Times) Has(at int64) bool {
	if t == nil {
		return true
	}
	i, found := slices.BinarySearchFunc(t.spans, at,
		func(s span, at int64) int { return cmp.Compare(s.from, at) })
	within := found || i > 0 && at < t.spans[i-1].to
	return within != t.outside
}

// During reports whether the selection is the time of a step or a fault, and not the time outside of it.
func (t *Times) During() bool { return t != nil && !t.outside }

// Part returns how much of the time between two times is selected.
func (t *Times) Part(from, to int64) int64 {
	if t == nil {
		return to - from
	}
	within := int64(0)
	for _, s := range t.spans {
		within += max(0, min(to, s.to)-max(from, s.from))
	}
	if t.outside {
		return to - from - within
	}
	return within
}

// EndOf returns the end of the selected time that a time is in, or math.MaxInt64 if there is no end.
func (t *Times) EndOf(at int64) int64 {
	if t == nil {
		return math.MaxInt64
	}
	for _, s := range t.spans {
		switch {
		case t.outside && s.from > at:
			return s.from
		case !t.outside && s.to > at:
			return s.to
		}
	}
	return math.MaxInt64
}

// Limiter is a check that looks also at packets outside of its times, and counts those in its times only.
type Limiter interface {
	Check
	Limit(*Times)
}

// Limited returns a check that judges only packets in a selection of time. For recordings of other programs,
// whose clocks may differ from the run's clock, it is INCONCLUSIVE.
func Limited(c Check, t *Times) Check {
	l := &limited{Check: c, times: t}
	l.watcher, _ = c.(Watcher)
	if own, is := c.(Limiter); is {
		own.Limit(t)
		l.own = true
	}
	return l
}

// limited is a check of the packets in a selection of time.
type limited struct {
	Check
	watcher Watcher // nil if the check is none
	times   *Times
	own     bool // the check selects the packets by itself
	capture *Capture
	packets uint64
}

// Begin implements Check.
func (l *limited) Begin(c *Capture) {
	l.capture = c
	l.Check.Begin(c)
}

// Packet implements Check.
func (l *limited) Packet(p *Packet) {
	in := l.times.Has(p.Time)
	if in {
		l.packets++
	}
	if in || l.own {
		l.Check.Packet(p)
	}
}

// Event implements Watcher.
func (l *limited) Event(p *Packet) {
	if l.watcher != nil && (l.own || l.times.Has(p.Time)) {
		l.watcher.Event(p)
	}
}

// Result implements Check. The need of the check is for the selected time only.
func (l *limited) Result() Result {
	r := l.Check.Result()
	r.Name += " " + l.times.title
	lacking := ""
	switch {
	case l.times.never != "":
		lacking = fmt.Sprintf("%s: %s", l.times.title, l.times.never)
	case !l.capture.Railbed:
		lacking = "the recording is not Railbed's, so its clock may differ from that of the run's steps"
	case l.packets == 0:
		lacking = "no packet was recorded " + l.times.title
	case r.grounds != nil:
		r.grounds.need.times = l.times
		l.capture.conclude(&r)
		return r
	}
	r.Verdict, r.Near = verdict.Inconclusive, nil
	r.Lacking = slices.Concat([]string{lacking}, r.Lacking)
	r.Details = slices.Concat([]string{lacking}, r.Details)
	return r
}

// needed returns the times in which a check of the selection needs every packet. traffic are the times in
// which there was traffic; the first of them encloses the others.
func (t *Times) needed(traffic []span, need Need) []span {
	if t == nil {
		return traffic
	}
	whole, spans := traffic[0], t.spans
	if t.outside {
		spans = merged(uncovered(traffic, t.spans))
	}
	var all []span
	for _, s := range spans {
		if s.to == math.MaxInt64 { // to the end of the run
			s.to = max(whole.to, s.from+1)
		}
		all = append(all, span{max(s.from-need.Around, min(s.from, whole.from)),
			min(s.to+need.Around, max(s.to, whole.to))})
	}
	if all = merged(all); need.Earlier && len(all) > 0 {
		all = []span{{min(all[0].from, whole.from), all[len(all)-1].to}}
	}
	return all
}

// words names the time that a check of the selection needs.
func (t *Times) words(need Need) string {
	words := "the time " + t.title
	if need.Around > 0 {
		words += fmt.Sprintf(", with %v around it", time.Duration(need.Around))
	}
	return words
}
