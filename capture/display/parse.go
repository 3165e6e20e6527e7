package display

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// parser reads a filter by recursive descent. && binds more tightly than ||.
type parser struct {
	text   string
	tokens []token
	next   int
	depth  int
	fields []*Field
}

// maxDepth bounds the nesting of a filter.
const maxDepth = 100

func (p *parser) peek() token { return p.tokens[p.next] }

func (p *parser) take() token {
	t := p.tokens[p.next]
	if t.kind != tokenEnd {
		p.next++
	}
	return t
}

// accept takes the next token if it is one of some signs or words.
func (p *parser) accept(texts ...string) bool {
	if t := p.peek(); t.kind != tokenString && t.kind != tokenEnd && slices.Contains(texts, t.text) {
		p.next++
		return true
	}
	return false
}

func (p *parser) wrong(t token, what, want string) error {
	return &Error{Filter: p.text, Column: t.at + 1, What: what, Want: want}
}

// found returns a token for an error message.
func found(t token) string {
	if t.kind == tokenEnd {
		return "the end of the filter"
	}
	return strconv.Quote(t.text)
}

func (p *parser) or() (predicate, error) {
	left, err := p.and()
	for err == nil && p.accept("||", "or") {
		var right predicate
		if right, err = p.and(); err == nil {
			a, b := left, right
			left = func(p *Packet) bool { return a(p) || b(p) }
		}
	}
	return left, err
}

func (p *parser) and() (predicate, error) {
	left, err := p.not()
	for err == nil && p.accept("&&", "and") {
		var right predicate
		if right, err = p.not(); err == nil {
			a, b := left, right
			left = func(p *Packet) bool { return a(p) && b(p) }
		}
	}
	return left, err
}

func (p *parser) not() (predicate, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.wrong(p.peek(), "a filter that is nested too deep", fmt.Sprintf("at most %d", maxDepth))
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("!", "not"):
		inner, err := p.not()
		if err != nil {
			return nil, err
		}
		return func(p *Packet) bool { return !inner(p) }, nil
	case p.accept("("):
		inner, err := p.or()
		if err == nil && !p.accept(")") {
			err = p.wrong(p.peek(), found(p.peek())+" in parentheses that do not end", `")"`)
		}
		return inner, err
	}
	return p.test()
}

// relations are the comparisons by their spellings.
var relations = map[string]relation{
	"==": {equal, false}, "eq": {equal, false}, "any_eq": {equal, false},
	"===": {equal, true}, "all_eq": {equal, true},
	"!=": {different, true}, "ne": {different, true}, "all_ne": {different, true},
	"!==": {different, false}, "~=": {different, false}, "any_ne": {different, false},
	">": {greater, false}, "gt": {greater, false}, ">=": {greaterEqual, false}, "ge": {greaterEqual, false},
	"<": {less, false}, "lt": {less, false}, "<=": {lessEqual, false}, "le": {lessEqual, false},
}

// relation is a comparison of values, and whether all values have to fulfil it.
type relation struct {
	holds func(order int) bool
	all   bool
}

func equal(order int) bool        { return order == 0 }
func different(order int) bool    { return order != 0 }
func greater(order int) bool      { return order > 0 }
func greaterEqual(order int) bool { return order >= 0 }
func less(order int) bool         { return order < 0 }
func lessEqual(order int) bool    { return order <= 0 }

// test reads a field alone, or a field and what it is compared with.
func (p *parser) test() (predicate, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	t := p.peek()
	if t.kind == tokenSign || t.kind == tokenWord {
		if r, is := relations[t.text]; is {
			p.next++
			return p.comparison(left, r)
		}
	}
	switch {
	case p.accept("in"):
		return p.membership(left)
	case p.accept("contains"):
		return p.containment(left, t)
	}
	if left.sliced {
		return nil, p.wrong(t, found(t)+" after a slice", "a comparison")
	}
	return left.exists, nil
}

// operand is a field, or a slice of it, as it stands in a filter.
type operand struct {
	*Field
	sliced bool
	kind   Kind
	values func(p *Packet, to []value) []value
}

func (o *operand) exists(p *Packet) bool { return len(o.values(p, p.left[:0])) > 0 }

// operand reads a field and its slice.
func (p *parser) operand() (*operand, error) {
	t := p.take()
	if t.kind != tokenWord {
		return nil, p.wrong(t, found(t)+" where a field belongs", "a field such as ip.src")
	}
	field := fieldsByName[t.text]
	if field == nil {
		return nil, p.wrong(t, fmt.Sprintf("no field %q", t.text), suggest(t.text))
	}
	p.fields = append(p.fields, field)
	o := &operand{Field: field, kind: field.Kind, values: field.read}
	if p.accept("[") {
		return o, p.slice(o, t)
	}
	return o, nil
}

// slice reads the ranges of a slice: offset:length, from-to, both inclusive, or an offset alone, separated by
// commas. Negative offsets count from the end.
func (p *parser) slice(o *operand, at token) error {
	if !o.kind.isBytes() {
		return p.wrong(at, fmt.Sprintf("a slice of %s, which is %s", o.Name, o.kind), "a field of bytes")
	}
	var ranges []byteRange
	for {
		r, err := p.byteRange()
		if err != nil {
			return err
		}
		ranges = append(ranges, r)
		if p.accept("]") {
			break
		}
		if !p.accept(",") {
			return p.wrong(p.peek(), found(p.peek())+" in a slice", `"," or "]"`)
		}
	}
	whole, protocol := o.values, o.kind == Protocol
	o.sliced, o.kind = true, Bytes
	o.values = func(p *Packet, to []value) []value {
		from := len(to)
		to = whole(p, to)
		kept := from
		for i := from; i < len(to); i++ {
			b := to[i].b
			if protocol { // as in Wireshark: a slice is of the header, and contains of everything in it
				b = b[:to[i].n]
			}
			cut, fits := cutRanges(b, ranges)
			if to[i].cutHeader && (!fits || slices.ContainsFunc(ranges, byteRange.fromEnd)) {
				p.unsure = true
			}
			if fits {
				to[kept] = value{b: cut}
				kept++
			}
		}
		return to[:kept]
	}
	return nil
}

// byteRange is a part of a value: length bytes from an offset, or to the end if length is negative.
type byteRange struct{ from, length int }

// fromEnd reports whether the part depends on where the value ends.
func (r byteRange) fromEnd() bool { return r.from < 0 || r.length < 0 }

// byteRange reads one range. The lexer takes it for one word, as colons and signs belong to addresses.
func (p *parser) byteRange() (byteRange, error) {
	t := p.take()
	bad := p.wrong(t, found(t)+" as a range of bytes", "offset:length, from-to, an offset, or offset:")
	if t.kind != tokenWord {
		return byteRange{}, bad
	}
	negative := strings.HasPrefix(t.text, "-")
	text := strings.TrimPrefix(t.text, "-")
	first, rest, colon := strings.Cut(text, ":")
	second, dash := "", false
	if !colon {
		first, second, dash = strings.Cut(text, "-")
	}
	var from int
	var err error
	if first != "" || !colon {
		from, err = strconv.Atoi(first)
	}
	if negative {
		from = -from
	}
	r := byteRange{from, 1}
	switch {
	case err != nil:
		return r, bad
	case colon && rest == "":
		r.length = -1
	case colon:
		r.length, err = strconv.Atoi(rest)
		if err != nil || r.length < 1 {
			return r, bad
		}
	case dash:
		last, err := strconv.Atoi(second)
		if err != nil || last < from || negative {
			return r, bad
		}
		r.length = last - from + 1
	}
	return r, nil
}

// cutRanges returns the bytes of some ranges, and whether the value has all of them.
func cutRanges(b []byte, ranges []byteRange) ([]byte, bool) {
	var all []byte
	for i, r := range ranges {
		from := r.from
		if from < 0 {
			from += len(b)
		}
		to := from + r.length
		if r.length < 0 {
			to = len(b)
		}
		if from < 0 || to > len(b) || from > to || r.length < 0 && from == to {
			return nil, false
		}
		if i == 0 {
			all = b[from:to:to]
		} else {
			all = append(all, b[from:to]...)
		}
	}
	return all, true
}

// comparison reads the right side of a comparison: a field or a value.
func (p *parser) comparison(left *operand, r relation) (predicate, error) {
	t := p.peek()
	if t.kind == tokenWord && fieldsByName[t.text] != nil {
		right, err := p.operand()
		if err != nil {
			return nil, err
		}
		if left.kind != right.kind && !(left.kind.isNumber() && right.kind.isNumber()) &&
			!(left.kind.isBytes() && right.kind.isBytes()) {
			return nil, p.wrong(t, fmt.Sprintf("%s, which is %s, compared with %s, which is %s", right.Name,
				right.kind, left.Name, left.kind), "two fields of the same kind")
		}
		return func(p *Packet) bool {
			p.left = left.values(p, p.left[:0])
			p.right = right.values(p, p.right[:0])
			p.whole(p.left, left.kind)
			p.whole(p.right, right.kind)
			if len(p.left) == 0 || len(p.right) == 0 {
				return false
			}
			for i := range p.left {
				for j := range p.right {
					if r.holds(compare(&p.left[i], &p.right[j], left.kind)) != r.all {
						return !r.all
					}
				}
			}
			return r.all
		}, nil
	}
	lit, err := p.literal(left)
	if err != nil {
		return nil, err
	}
	return func(p *Packet) bool {
		p.left = left.values(p, p.left[:0])
		p.whole(p.left, left.kind)
		for i := range p.left {
			if r.holds(lit.compare(&p.left[i])) != r.all {
				return !r.all
			}
		}
		return r.all && len(p.left) > 0
	}, nil
}

// membership reads a set. Its elements are values and ranges, separated by commas.
func (p *parser) membership(left *operand) (predicate, error) {
	if !p.accept("{") {
		return nil, p.wrong(p.peek(), found(p.peek())+" where a set belongs", "{VALUE, FROM..TO}")
	}
	var ranges [][2]literal
	for {
		from, err := p.literal(left)
		if err != nil {
			return nil, err
		}
		to := from
		if p.accept("..") {
			if to, err = p.literal(left); err != nil {
				return nil, err
			}
		}
		ranges = append(ranges, [2]literal{from, to})
		if p.accept("}") {
			break
		}
		if !p.accept(",") {
			return nil, p.wrong(p.peek(), found(p.peek())+" in a set", `"," or "}"`)
		}
	}
	return func(p *Packet) bool {
		p.left = left.values(p, p.left[:0])
		p.whole(p.left, left.kind)
		for i := range p.left {
			for _, r := range ranges {
				if r[0].compare(&p.left[i]) >= 0 && r[1].compare(&p.left[i]) <= 0 {
					return true
				}
			}
		}
		return false
	}, nil
}

// containment reads the bytes or the text that a value contains.
func (p *parser) containment(left *operand, at token) (predicate, error) {
	if !left.kind.isBytes() {
		return nil, p.wrong(at, fmt.Sprintf("contains for %s, which is %s", left.Name, left.kind),
			"a field of bytes or text")
	}
	t := p.take()
	part := []byte(t.text)
	if t.kind != tokenString {
		parsed, is := parseBytes(t.text)
		if t.kind != tokenWord || !is {
			return nil, p.wrong(t, found(t)+" after contains", `bytes such as 0a:0b, or a "string"`)
		}
		part = parsed
	}
	return func(p *Packet) bool {
		p.left = left.values(p, p.left[:0])
		p.whole(p.left, left.kind)
		return slices.ContainsFunc(p.left, func(v value) bool { return bytes.Contains(v.b, part) })
	}, nil
}
