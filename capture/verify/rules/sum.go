package rules

import (
	"railbed/capture/display"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// sums judges the sum of the values of a field.
type sums struct {
	*rule
	field *display.Field
	bound *spec.Bound
	keys  table[uint64]

	total, with uint64
}

func newSums(k *rule, f *display.Field, b *spec.Bound) *sums {
	s := &sums{rule: k, field: f, bound: b, keys: newTable[uint64](&k.keyer)}
	expects(k, &s.keys, b)
	return s
}

func (s *sums) take(p *evidence.Packet) {
	n := s.keys.of(p)
	if n == nil {
		return
	}
	value, has, unseen := s.field.Number(p.Display())
	if s.doubts.Add(p, unseen) || !has {
		return
	}
	*n += value
	s.total += value
	s.with++
	if s.exceeds(s.bound, float64(*n)) {
		s.offenders.Add(p)
	}
}

// exceeds reports whether a number that can only grow breaks the bound for good.
func (k *rule) exceeds(b *spec.Bound, n float64) bool {
	switch b.Op {
	case "<":
		return n >= b.Limit
	case "<=":
		return n > b.Limit
	case "==":
		return n > b.Limit*(1+k.spec.Tolerance.Float())
	}
	return false
}

func (s *sums) conclude(f *evidence.Finding) string {
	for _, at := range s.keys.all() {
		n := float64(*s.keys.states[at])
		s.hold(f, "sum of "+s.field.Name+s.keyer.name(at), s.bound, n, amount(n))
	}
	if s.selected > 0 && s.with == 0 {
		f.Unclear = append(f.Unclear, "no packet has "+s.field.Name)
	}
	return s.over(plural.Text("%s is %d in %d packets", s.field.Name, s.total, s.with), len(s.keys.keys))
}
