package display

import (
	"bytes"
	"slices"
)

// Expr is a part of a compiled filter, for those who compile it to something else. It does not change.
type Expr struct {
	Op Op
	// Parts are the operands of And, Or and Not.
	Parts []*Expr
	// Left is the field that every other part reads, and Right the field with which Compare compares it.
	Left, Right *Operand
	// Orders are the results of Compare that fulfil it. All is set if all values have to, not only some.
	Orders Orders
	All    bool
	// Ranges hold the literal of Compare without Right, as one range, and the elements of In.
	Ranges [][2]Literal
	// Needle has the bytes that Contains looks for.
	Needle []byte
	// Column is the column of the part in the filter, from 1.
	Column int

	match predicate
}

// implies reports whether the part matches only packets that have a field.
func (e *Expr) implies(name string) bool {
	switch e.Op {
	case And:
		return slices.ContainsFunc(e.Parts, func(part *Expr) bool { return part.implies(name) })
	case Or:
		return !slices.ContainsFunc(e.Parts, func(part *Expr) bool { return !part.implies(name) })
	case Not:
		return false
	}
	return e.Left.Name == name || e.Right != nil && e.Right.Name == name
}

// Op is the kind of a part of a filter.
type Op uint8

// Kinds of parts.
const (
	And Op = iota
	Or
	Not
	Exists
	Compare
	In
	Contains
)

// Orders is a set of results of a comparison.
type Orders uint8

// Results of a comparison of the left with the right side.
const (
	Less Orders = 1 << iota
	Equal
	Greater
)

// holds reports whether the result of cmp.Compare is in the set.
func (o Orders) holds(order int) bool { return o&(1<<(order+1)) != 0 }

// Operand is a field, or a slice of it, as it stands in a filter.
type Operand struct {
	*Field
	// Kind is the kind of the values: Bytes for a slice.
	Kind Kind
	// Slice has the ranges of a slice, and is nil without one.
	Slice []ByteRange

	values func(p *Packet, to []value) []value
}

// ByteRange is a part of a value: Length bytes from an offset, or to the end if Length is negative. A
// negative offset counts from the end.
type ByteRange struct{ From, Length int }

// fromEnd reports whether the part depends on where the value ends.
func (r ByteRange) fromEnd() bool { return r.From < 0 || r.Length < 0 }

func both(left, right *Expr) *Expr {
	a, b := left.match, right.match
	return &Expr{Op: And, Parts: []*Expr{left, right}, Column: left.Column,
		match: func(p *Packet) truth {
			l := a(p)
			if l == 0 { // surely not
				return 0
			}
			r := b(p)
			if r == 0 {
				return 0
			}
			return l&r&fulfilled | (l|r)&^fulfilled
		}}
}

func either(left, right *Expr) *Expr {
	a, b := left.match, right.match
	return &Expr{Op: Or, Parts: []*Expr{left, right}, Column: left.Column,
		match: func(p *Packet) truth {
			l := a(p)
			if l == fulfilled { // surely
				return l
			}
			r := b(p)
			if r == fulfilled {
				return r
			}
			return l | r
		}}
}

func not(inner *Expr) *Expr {
	match := inner.match
	return &Expr{Op: Not, Parts: []*Expr{inner}, Column: inner.Column,
		match: func(p *Packet) truth { return match(p) ^ fulfilled }}
}

// exists is fulfilled by packets that have the field.
func (o *Operand) exists() *Expr {
	return &Expr{Op: Exists, Left: o, match: func(p *Packet) truth {
		p.unseen = 0
		if len(o.values(p, p.left[:0])) > 0 {
			return fulfilled
		}
		return p.truthOf(false)
	}}
}

// read sets the packet's left values to the operand's, and unseen to the reasons why there may be others.
func (o *Operand) read(p *Packet) []value {
	p.unseen = 0
	p.left = o.values(p, p.left[:0])
	p.whole(p.left, o.Kind)
	return p.left
}

// decided returns a result that no other value can change.
func decided(match bool) truth {
	if match {
		return fulfilled
	}
	return 0
}

func (o *Operand) comparedWith(right *Operand, r relation) *Expr {
	return &Expr{Op: Compare, Left: o, Right: right, Orders: r.Orders, All: r.all,
		match: func(p *Packet) truth {
			o.read(p)
			p.right = right.values(p, p.right[:0])
			p.whole(p.right, right.Kind)
			if len(p.left) == 0 || len(p.right) == 0 {
				return p.truthOf(false)
			}
			for i := range p.left {
				for j := range p.right {
					if r.holds(compare(&p.left[i], &p.right[j], o.Kind)) != r.all {
						return p.decidedBy(!r.all, o.Kind, right.Kind)
					}
				}
			}
			return p.truthOf(r.all)
		}}
}

// decidedBy is decided for values of some kinds. A value of a protocol that the capture cut off is not known.
func (p *Packet) decidedBy(match bool, kinds ...Kind) truth {
	if p.unseen&CutOff != 0 && slices.Contains(kinds, Protocol) {
		return p.truthOf(match)
	}
	return decided(match)
}

func (o *Operand) comparedTo(lit Literal, r relation) *Expr {
	return &Expr{Op: Compare, Left: o, Orders: r.Orders, All: r.all, Ranges: [][2]Literal{{lit, lit}},
		match: func(p *Packet) truth {
			left := o.read(p)
			for i := range left {
				if r.holds(lit.compare(&left[i])) != r.all {
					return p.decidedBy(!r.all, o.Kind)
				}
			}
			return p.truthOf(r.all && len(left) > 0)
		}}
}

func (o *Operand) within(ranges [][2]Literal) *Expr {
	return &Expr{Op: In, Left: o, Ranges: ranges, match: func(p *Packet) truth {
		left := o.read(p)
		for i := range left {
			for _, r := range ranges {
				if r[0].compare(&left[i]) >= 0 && r[1].compare(&left[i]) <= 0 {
					return p.decidedBy(true, o.Kind)
				}
			}
		}
		return p.truthOf(false)
	}}
}

func (o *Operand) containing(part []byte) *Expr {
	return &Expr{Op: Contains, Left: o, Needle: part, match: func(p *Packet) truth {
		if slices.ContainsFunc(o.read(p), func(v value) bool { return bytes.Contains(v.b, part) }) {
			return fulfilled
		}
		return p.truthOf(false)
	}}
}
