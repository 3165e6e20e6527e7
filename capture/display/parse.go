package display

import (
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

func (p *parser) or() (*Expr, error) {
	left, err := p.and()
	for err == nil && p.accept("||", "or") {
		var right *Expr
		if right, err = p.and(); err == nil {
			left = either(left, right)
		}
	}
	return left, err
}

func (p *parser) and() (*Expr, error) {
	left, err := p.not()
	for err == nil && p.accept("&&", "and") {
		var right *Expr
		if right, err = p.not(); err == nil {
			left = both(left, right)
		}
	}
	return left, err
}

func (p *parser) not() (*Expr, error) {
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
		return not(inner), nil
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
	"==": {Equal, false}, "eq": {Equal, false}, "any_eq": {Equal, false},
	"===": {Equal, true}, "all_eq": {Equal, true},
	"!=": {Less | Greater, true}, "ne": {Less | Greater, true}, "all_ne": {Less | Greater, true},
	"!==": {Less | Greater, false}, "~=": {Less | Greater, false}, "any_ne": {Less | Greater, false},
	">": {Greater, false}, "gt": {Greater, false},
	">=": {Greater | Equal, false}, "ge": {Greater | Equal, false},
	"<": {Less, false}, "lt": {Less, false}, "<=": {Less | Equal, false}, "le": {Less | Equal, false},
}

// relation is a comparison of values, and whether all values have to fulfil it.
type relation struct {
	Orders
	all bool
}

// test reads a field alone, or a field and what it is compared with.
func (p *parser) test() (*Expr, error) {
	column := p.peek().at + 1
	tested, err := p.compared()
	if err != nil {
		return nil, err
	}
	tested.Column = column
	return tested, nil
}

func (p *parser) compared() (*Expr, error) {
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
	if left.Slice != nil {
		return nil, p.wrong(t, found(t)+" after a slice", "a comparison")
	}
	return left.exists(), nil
}

// operand reads a field and its slice.
func (p *parser) operand() (*Operand, error) {
	t := p.take()
	if t.kind != tokenWord {
		return nil, p.wrong(t, found(t)+" where a field belongs", "a field such as ip.src")
	}
	field := fieldsByName[t.text]
	if field == nil {
		return nil, p.wrong(t, fmt.Sprintf("no field %q", t.text), suggest(t.text))
	}
	p.fields = append(p.fields, field)
	o := &Operand{Field: field, Kind: field.Kind, values: field.read}
	if p.accept("[") {
		return o, p.slice(o, t)
	}
	return o, nil
}

// slice reads the ranges of a slice: offset:length, from-to, both inclusive, or an offset alone, separated by
// commas. Negative offsets count from the end.
func (p *parser) slice(o *Operand, at token) error {
	if !o.Kind.isBytes() {
		return p.wrong(at, fmt.Sprintf("a slice of %s, which is %s", o.Name, o.Kind), "a field of bytes")
	}
	var ranges []ByteRange
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
	whole, protocol := o.values, o.Kind == Protocol
	o.Slice, o.Kind = ranges, Bytes
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
			if to[i].cutHeader && (!fits || slices.ContainsFunc(ranges, ByteRange.fromEnd)) {
				p.unseen |= CutOff
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

// byteRange reads one range. The lexer takes it for one word, as colons and signs belong to addresses.
func (p *parser) byteRange() (ByteRange, error) {
	t := p.take()
	bad := p.wrong(t, found(t)+" as a range of bytes", "offset:length, from-to, an offset, or offset:")
	if t.kind != tokenWord {
		return ByteRange{}, bad
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
	r := ByteRange{from, 1}
	switch {
	case err != nil:
		return r, bad
	case colon && rest == "":
		r.Length = -1
	case colon:
		r.Length, err = strconv.Atoi(rest)
		if err != nil || r.Length < 1 {
			return r, bad
		}
	case dash:
		last, err := strconv.Atoi(second)
		if err != nil || last < from || negative {
			return r, bad
		}
		r.Length = last - from + 1
	}
	return r, nil
}

// cutRanges returns the bytes of some ranges, and whether the value has all of them.
func cutRanges(b []byte, ranges []ByteRange) ([]byte, bool) {
	var all []byte
	for i, r := range ranges {
		from := r.From
		if from < 0 {
			from += len(b)
		}
		to := from + r.Length
		if r.Length < 0 {
			to = len(b)
		}
		if from < 0 || to > len(b) || from > to || r.Length < 0 && from == to {
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
func (p *parser) comparison(left *Operand, r relation) (*Expr, error) {
	t := p.peek()
	if t.kind == tokenWord && fieldsByName[t.text] != nil {
		right, err := p.operand()
		if err != nil {
			return nil, err
		}
		if left.Kind != right.Kind && !(left.Kind.isNumber() && right.Kind.isNumber()) &&
			!(left.Kind.isBytes() && right.Kind.isBytes()) {
			return nil, p.wrong(t, fmt.Sprintf("%s, which is %s, compared with %s, which is %s", right.Name,
				right.Kind, left.Name, left.Kind), "two fields of the same kind")
		}
		return left.comparedWith(right, r), nil
	}
	lit, err := p.literal(left)
	if err != nil {
		return nil, err
	}
	e := left.comparedTo(lit, r)
	return e, p.possible(e, t)
}

// membership reads a set. Its elements are values and ranges, separated by commas.
func (p *parser) membership(left *Operand) (*Expr, error) {
	if !p.accept("{") {
		return nil, p.wrong(p.peek(), found(p.peek())+" where a set belongs", "{VALUE, FROM..TO}")
	}
	t := p.peek()
	var ranges [][2]Literal
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
		ranges = append(ranges, [2]Literal{from, to})
		if p.accept("}") {
			break
		}
		if !p.accept(",") {
			return nil, p.wrong(p.peek(), found(p.peek())+" in a set", `"," or "}"`)
		}
	}
	e := left.within(ranges)
	return e, p.possible(e, t)
}

// containment reads the bytes or the text that a value contains.
func (p *parser) containment(left *Operand, at token) (*Expr, error) {
	if !left.Kind.isBytes() {
		return nil, p.wrong(at, fmt.Sprintf("contains for %s, which is %s", left.Name, left.Kind),
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
	if words := closed[left.Name]; left.Slice == nil && words != nil &&
		!slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, string(part)) }) {
		return nil, p.wrong(t, fmt.Sprintf("no packet has a %s with %q", left.Name, part),
			oneWord(string(part), words))
	}
	return left.containing(part), nil
}
