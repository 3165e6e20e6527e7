package display

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/feed"
	"railbed/internal/nearest"
)

// scale describes the values that a number's field can have: multiples of a unit from least to most.
type scale struct{ least, most, unit uint64 }

// scales are the scales of fields that are narrower than their places, or that have none.
var scales = map[string]scale{
	"ip.version":                   {4, 6, 2}, // what is not IP has no header of IP
	"ipv6.version":                 {6, 6, 1},
	"eth.type":                     {1536, 0xFFFF, 1}, // smaller numbers are lengths (IEEE 802.3, 3.2.6)
	"tcp.len":                      {0, 0xFFFF, 1},
	"frame.len":                    {0, 1<<32 - 1, 1},
	"frame.cap_len":                {0, 1<<32 - 1, 1},
	"frame.interface_queue":        {0, 1<<32 - 1, 1},
	"frame.packet_flags_direction": {0, 3, 1},
	"railbed.rank":                 {0, 1<<31 - 1, 1},
	"run.rank":                     {0, 1<<31 - 1, 1},
	"run.message":                  {1, 1<<63 - 1, 1},
}

// scaleOf returns the values that a field can have.
func scaleOf(f *Field) scale {
	if s, known := scales[f.Name]; known {
		return s
	}
	s := scale{0, 0, 1}
	if f.Kind == Boolean {
		return scale{0, 1, 1}
	}
	for _, at := range f.Places {
		if at.Length == 0 {
			return scale{0, ^uint64(0), 1}
		}
		s.unit = max(at.Unit, 1)
		s.most = max(s.most, at.most()*s.unit)
	}
	if len(f.Places) == 0 {
		s.most = ^uint64(0)
	}
	return s
}

// most returns the greatest number in the place.
func (o *Place) most() uint64 {
	bits := uint(8 * o.Length)
	if o.Mask != 0 {
		mask := o.Mask
		for bits = 0; mask != 0; mask &= mask - 1 {
			bits++
		}
	}
	return ^uint64(0) >> (64 - bits)
}

// has reports whether a value of the scale is in a range.
func (s scale) has(from, to uint64) bool {
	from, to = max(from, s.least), min(to, s.most)
	return from <= to && (to/s.unit)*s.unit >= from
}

// fits returns an error if a number is greater than every value of the field.
func (p *parser) fits(of *Operand, t token, n uint64) error {
	if s := scaleOf(of.Field); n > s.most {
		return p.wrong(t, fmt.Sprintf("%s is too large for %s", t.text, of.Name),
			fmt.Sprintf("at most %d", s.most))
	}
	return nil
}

// possible returns an error if no packet can fulfil a comparison of numbers. t is the first token of the
// literal.
func (p *parser) possible(e *Expr, t token) error {
	if e.Left.Kind != Unsigned {
		return nil
	}
	s := scaleOf(e.Left.Field)
	for _, r := range e.Ranges {
		from, to := r[0].Number(), r[1].Number()
		holds := s.has(from, to)
		if e.Op == Compare {
			holds = e.Orders&Less != 0 && from > s.least || e.Orders&Equal != 0 && holds ||
				e.Orders&Greater != 0 && from < s.most
		}
		if holds {
			continue
		}
		want := fmt.Sprintf("a number from %d to %d", s.least, s.most)
		if s.unit > 1 {
			want += fmt.Sprintf(", a multiple of %d", s.unit)
		}
		if from > to {
			want = "the smaller number first"
		}
		return p.wrong(t, "no packet has such a "+e.Left.Name, want)
	}
	return nil
}

// closed are the words of the fields that have no other values.
var closed = Domain{
	"railbed.verdict": append([]string{"enqueue", "dequeue", "drop"}, feed.Verdicts()...),
	"railbed.reason":  feed.Reasons()[1:],
}

// word returns an error if no packet has a text.
func (p *parser) word(of *Operand, t token) error {
	if t.text == "" {
		return p.wrong(t, "no packet has an empty "+of.Name, "a word, or the field alone")
	}
	if words := closed[of.Name]; words != nil && !slices.Contains(words, t.text) {
		return p.wrong(t, fmt.Sprintf("no packet has the %s %q", of.Name, t.text), oneWord(t.text, words))
	}
	return nil
}

// oneWord lists the words in place of an unknown one, for an error message.
func oneWord(word string, words []string) string {
	const most = 40
	near := nearest.Word(word, words)
	for _, known := range words {
		if strings.HasPrefix(word, known) { // as dropped
			near = known
		}
	}
	want := "one of " + strings.Join(words[:min(most, len(words))], ", ")
	if more := len(words) - most; more > 0 {
		want += fmt.Sprintf(" and %d more", more)
	}
	if near != "" {
		want += fmt.Sprintf("; did you mean %q?", near)
	}
	return want
}

// Domain has all values that fields of texts and numbers have in a recording, by the names of the fields.
// Fields that it does not have may have any value.
type Domain map[string][]string

// Impossible returns an error for each comparison that no value of the domain fulfils, with its column.
func (f *Filter) Impossible(d Domain) (all []*Error) {
	var walk func(e *Expr)
	walk = func(e *Expr) {
		for _, part := range e.Parts {
			walk(part)
		}
		if e.Left == nil || e.Right != nil || e.Left.Slice != nil || e.Op == Exists {
			return
		}
		values, known := d[e.Left.Name]
		if !known || e.existsIn(values) {
			return
		}
		wrong := &Error{Filter: f.text, Column: e.Column, What: "no packet has such a " + e.Left.Name}
		if len(values) > 0 {
			word := string(e.Needle)
			if len(e.Ranges) > 0 && e.Left.Kind == Text {
				word = string(e.Ranges[0][0].b)
			}
			wrong.Want = oneWord(word, values)
		}
		all = append(all, wrong)
	}
	if f.root != nil {
		walk(f.root)
	}
	return all
}

// existsIn reports whether each constant of a comparison is one of the values, or has some of them on its
// side.
func (e *Expr) existsIn(texts []string) bool {
	some := func(holds func(v *value) bool) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			v := value{b: []byte(text)}
			if e.Left.Kind == Unsigned {
				n, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					return false
				}
				v = value{n: int64(n)}
			}
			return holds(&v)
		})
	}
	orders := e.Orders
	if orders == Less|Greater { // each value differs from a constant that does not exist
		orders = Equal
	}
	switch e.Op {
	case Contains:
		return some(func(v *value) bool { return strings.Contains(string(v.b), string(e.Needle)) })
	case In:
		return !slices.ContainsFunc(e.Ranges, func(r [2]Literal) bool {
			return !some(func(v *value) bool { return r[0].compare(v) >= 0 && r[1].compare(v) <= 0 })
		})
	}
	return some(func(v *value) bool { return orders.holds(e.Ranges[0][0].compare(v)) })
}
