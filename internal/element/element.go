// Package element is the numbers that collectives compute with: their types, the
// operations that combine them, and the loops that do this over memory, in the
// machine's byte order.
//
// Results are the same bits on every machine, whether or not its processor has vectors:
// each operation rounds to the nearest value of its type, ties to even, and subnormal
// numbers count. Of a NaN it is fixed that it is one. Sums of bfloat16 and float16 are
// computed as float32 and rounded, which is exact to their last bit (Figueroa, "When is
// double rounding innocuous?", 1995).
//
// The package is pure; its functions are safe for concurrent use.
package element

import "slices"

// Type is the type of an element.
type Type string

// Types, as nccl-tests prints them.
const (
	Float32  Type = "float"    // IEEE 754 binary32
	BFloat16 Type = "bfloat16" // the upper half of a float32
	Float16  Type = "half"     // IEEE 754 binary16
	Int32    Type = "int32"    // two's complement; sums wrap around
)

var types = []Type{Float32, BFloat16, Float16, Int32}

// Types are all, the default first.
func Types() []Type { return slices.Clone(types) }

// Size is that of an element in bytes; 0 of what is no type.
func (t Type) Size() int {
	switch t {
	case Float32, Int32:
		return 4
	case BFloat16, Float16:
		return 2
	}
	return 0
}

// Digits is how many binary digits a whole number may have that is exact in the type.
func (t Type) Digits() int {
	switch t {
	case Float32:
		return 24
	case BFloat16:
		return 8
	case Float16:
		return 11
	}
	return 31
}

// Op is what is made of the elements of several ranks.
type Op string

// Operations, as nccl-tests prints them. Max and Min are maximumNumber and minimumNumber
// of IEEE 754-2019: what is a number wins over a NaN, and -0 is below 0. (NCCL takes
// CUDA's fmaxf and fminf, which leave the sign of a zero open.)
//
// An Average is made as NCCL does (hostToDevRedOp in src/enqueue.cc): of floating-point
// elements each rank's own is multiplied by 1/n, both rounded to the type, before it is
// added up, so that sums do not overflow; a sum of integers is divided by n at the end,
// towards 0.
const (
	Sum     Op = "sum"
	Max     Op = "max"
	Min     Op = "min"
	Average Op = "avg"
	// None is that of operations that combine nothing.
	None Op = "none"
)

var ops = []Op{Sum, Max, Min, Average}

// Ops are all that combine, the default first.
func Ops() []Op { return slices.Clone(ops) }

// Terms says how many ranks' elements there are in the operands of a combination, for an
// Average, and in the whole operation.
type Terms struct{ A, B, Ranks int }

// Combine sets each element of dst to what an operation makes of those of a and b. All
// have the same length; dst may be a or b. Memory is aligned to the size of an element.
type Combine func(dst, a, b []byte)

// Combiner is the loop for elements of a type, nil where there is no such type or
// operation.
func Combiner(t Type, op Op, terms Terms) Combine {
	sum := combiner(t, Sum)
	switch {
	case op != Average:
		return combiner(t, op)
	case sum == nil:
		return nil
	case t != Int32 && (terms.A == 1 || terms.B == 1):
		a, b := float32(1), float32(1)
		if terms.A == 1 {
			a = Scale(t, terms.Ranks)
		}
		if terms.B == 1 {
			b = Scale(t, terms.Ranks)
		}
		return weighted(t, a, b)
	case t == Int32 && terms.A+terms.B == terms.Ranks:
		return divided(sum, terms.Ranks)
	}
	return sum
}

// divided is a sum of Int32 that is divided by n at once.
func divided(sum Combine, n int) Combine {
	return func(dst, a, b []byte) {
		sum(dst, a, b)
		divide(dst, n)
	}
}

// Scale is 1/n as an average of a floating-point type multiplies with it.
func Scale(t Type, n int) float32 {
	scale := float32(1 / float64(n))
	switch t {
	case BFloat16:
		return FromBFloat16(ToBFloat16(scale))
	case Float16:
		return FromFloat16(ToFloat16(scale))
	}
	return scale
}

// Scaled is a number times such a scale, rounded to the type.
func Scaled(t Type, value, scale float32) float32 {
	return float32(At(t, Append(t, nil, float64(value*scale)), 0))
}
