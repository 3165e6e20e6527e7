package rules

import (
	"fmt"
	"strconv"

	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// each judges the rules never and always: whether every packet must match the filter (want), or none may.
type each struct {
	*rule
	filter *display.Filter
	want   bool
}

func (e *each) take(p *evidence.Packet) {
	match, unseen := e.filter.Judge(p.Display())
	if !e.doubts.Add(p, unseen) && match != e.want {
		e.offenders.Add(p)
	}
}

func (e *each) conclude(f *evidence.Finding) string {
	f.Rests = true
	how := "match"
	if e.want {
		how = "do not match"
	}
	if e.offenders.Count > 0 {
		f.Wrong = append(f.Wrong, plural.Text("%d packets "+how+" %q", e.offenders.Count, e.filter))
	}
	return plural.Text("%d of %d packets "+how, e.offenders.Count, e.selected)
}

// counts judges the number of packets that match a filter.
type counts struct {
	*rule
	filter *display.Filter
	bound  *spec.Bound
	keys   table[uint64]
	total  uint64
}

func newCounts(k *rule, f *display.Filter, b *spec.Bound) *counts {
	c := &counts{rule: k, filter: f, bound: b, keys: newTable[uint64](&k.keyer)}
	expects(k, &c.keys, b)
	return c
}

func (c *counts) take(p *evidence.Packet) {
	n := c.keys.of(p)
	if n == nil || !c.matches(c.filter, p) {
		return
	}
	*n++
	c.total++
	if c.exceeds(c.bound, float64(*n)) {
		c.offenders.Add(p)
	}
}

func (c *counts) conclude(f *evidence.Finding) string {
	for _, at := range c.keys.all() {
		n := float64(*c.keys.states[at])
		c.hold(f, "packets"+c.keyer.name(at), c.bound, n, amount(n))
	}
	return c.over(plural.Text("%d of %d packets match", c.total, c.selected), len(c.keys.keys))
}

// hold adds a claim about a number that missing packets could only raise. A number that has to be equal
// may be wrong either way. The numbers of keys of which the capture shows nothing are not known.
func (k *rule) hold(f *evidence.Finding, what string, b *spec.Bound, value float64, shown string) {
	switch {
	case b.Op == "==" && k.exceeds(b, value): // missing packets could not lower it
		line := fmt.Sprintf("%s: %s, want %s", what, shown, b)
		if !k.spec.Tolerance.IsZero() {
			line += fmt.Sprintf(" ± %v", k.spec.Tolerance)
		}
		f.Wrong = append(f.Wrong, line)
	case b.Op == "==" && !k.spec.Tolerance.IsZero():
		f.Rests = true
		if value < b.Limit*(1-k.spec.Tolerance.Float()) {
			f.Absent = append(f.Absent, fmt.Sprintf("%s: %s, want %s ± %v", what, shown, b,
				k.spec.Tolerance))
		}
	case b.Op == "==" && b.Limit != 0:
		f.HoldEither(what, b, value, shown)
	default:
		f.Hold(what, b, value, shown)
	}
	f.Rests = f.Rests || k.spec.Per != ""
}

// over adds the number of keys to a summary.
func (k *rule) over(text string, keys int) string {
	if k.spec.Per == "" {
		return text
	}
	return fmt.Sprintf("%s, in %s", text, plural.Count(keys, k.spec.Per+"s"))
}

// portion is the state of a key of a share.
type portion struct{ matched, all uint64 }

// shares judges the share of packets that match a filter.
type shares struct {
	*rule
	filter *display.Filter
	bound  *spec.Bound
	keys   table[portion]
	total  portion
}

func newShares(k *rule, f *display.Filter, b *spec.Bound) *shares {
	s := &shares{rule: k, filter: f, bound: b, keys: newTable[portion](&k.keyer)}
	expects(k, &s.keys, b)
	return s
}

func (s *shares) take(p *evidence.Packet) {
	n := s.keys.of(p)
	if n == nil {
		return
	}
	match, unseen := s.filter.Judge(p.Display())
	if s.doubts.Add(p, unseen) {
		return
	}
	n.all++
	s.total.all++
	if match {
		n.matched++
		s.total.matched++
	}
	if match == (s.bound.Op == "<" || s.bound.Op == "<=" || s.bound.Op == "==") &&
		!s.bound.Holds(float64(n.matched)/float64(n.all)) {
		s.offenders.Add(p)
	}
}

func (s *shares) conclude(f *evidence.Finding) string {
	for _, at := range s.keys.all() {
		n := s.keys.states[at]
		if n.all == 0 && s.selected > 0 && !s.bound.Holds(0) { // no share of nothing
			f.Unclear = append(f.Unclear, "no packet"+s.keyer.name(at)+" came")
		}
		if n.all > 0 {
			share := float64(n.matched) / float64(n.all)
			f.HoldEither("share"+s.keyer.name(at), s.bound, share,
				fmt.Sprintf("%s, %d of %d", evidence.Percent(share), n.matched, n.all))
		}
	}
	f.Rests = true
	if len(f.Absent) == 0 {
		s.offenders.Forget()
	}
	share := 0.0
	if s.total.all > 0 {
		share = float64(s.total.matched) / float64(s.total.all)
	}
	return s.over(fmt.Sprintf("%s of packets match, %d of %d", evidence.Percent(share), s.total.matched,
		s.total.all), len(s.keys.keys))
}

// amount formats a number without an exponent.
func amount(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
