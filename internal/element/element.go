// Package element defines the numbers that collectives compute with: their types, the operations
// that combine them, and the loops that do this over memory, in the machine's byte order.
//
// Results are the same bits on every machine. Each operation rounds to the nearest value of its type,
// ties to even, and keeps subnormal numbers. Whether a result is a NaN is the same everywhere; the bits of
// the NaN may differ. Sums
// of bfloat16 and float16 are computed as float32 and then rounded, which gives the correctly
// rounded sum (Figueroa, "When is double rounding innocuous?", 1995).
//
// The package has no state; its functions are safe for concurrent use.
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

// Types returns all types, the default first.
func Types() []Type { return slices.Clone(types) }

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (t Type) Size() int {
	switch t {
	case Float32, Int32:
		return 4
	case BFloat16, Float16:
		return 2
	}
	return 0
}

// Digits returns the number of binary digits up to which every whole number is exact in the type.
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

// Op is an operation that combines the elements of several ranks.
type Op string

// Operations, as nccl-tests prints them. Max and Min are maximumNumber and minimumNumber of IEEE
// 754-2019: a number wins over a NaN, and -0 is below 0. (NCCL uses CUDA's fmaxf and fminf, which
// leave the sign of a zero open.)
//
// An Average is computed as NCCL does (hostToDevRedOp in src/enqueue.cc). For floating-point types
// each rank's elements are multiplied by 1/n before they are added, so that sums do not overflow;
// the factor and the products are rounded to the type. A sum of integers is divided by n at the
// end, towards 0.
const (
	Sum     Op = "sum"
	Max     Op = "max"
	Min     Op = "min"
	Average Op = "avg"
	// None stands for operations that combine nothing.
	None Op = "none"
)

var ops = []Op{Sum, Max, Min, Average}

// Ops returns all operations that combine elements, the default first.
func Ops() []Op { return slices.Clone(ops) }

// Terms holds the counts for an Average. A and B are the numbers of ranks whose elements are already
// in the operands a and b of a combination. Ranks is the number of ranks in the whole operation.
type Terms struct{ A, B, Ranks int }

// Combine sets each element of dst to the result of the operation on the elements of a and b. All
// three have the same length; dst may be a or b. Memory is aligned to the size of an element.
type Combine func(dst, a, b []byte)

// Combiner returns the loop for an operation on elements of type t, or nil if the type or operation
// does not exist.
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

// divided returns a Combine that adds elements of Int32 and divides each sum by n.
func divided(sum Combine, n int) Combine {
	return func(dst, a, b []byte) {
		sum(dst, a, b)
		divide(dst, n)
	}
}

// Scale returns 1/n, rounded to the type: the factor of an Average over n ranks.
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

// Scaled returns a number times a scale from Scale, rounded to the type.
func Scaled(t Type, value, scale float32) float32 {
	return float32(At(t, Append(t, nil, float64(value*scale)), 0))
}
