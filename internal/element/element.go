// Package element defines the numbers that collectives compute with: their types, the operations
// that combine them, and the loops that do this over memory, in the machine's byte order.
//
// Results are the same bits on every machine. Each operation rounds to the nearest value of its type,
// ties to even, and keeps subnormal numbers. Whether a result is a NaN is the same everywhere; the bits of
// the NaN may differ. Sums and products of types of 8 and 16 bits are computed as float32 and then
// rounded. This gives the correctly rounded result (Figueroa, "When is double rounding innocuous?",
// 1995). A product of two such numbers has at most 22 digits.
//
// The sum of n numbers x in any order differs from the exact sum by at most ((1+u)^(n-1) - 1) times
// the sum of all |x|. Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section
// 4.2. No partial sum may exceed the largest value of the type. u is 2^-Digits: 2^-3 for fp8_e5m2, 2^-4 for
// fp8_e4m3, 2^-8 for bfloat16, 2^-11 for half, 2^-24 for float and 2^-53 for double. Subnormal
// numbers are no exception, because their sums are exact. For eight numbers the factor is 1.28 for
// fp8_e5m2, 0.53 for fp8_e4m3 and 0.028 for bfloat16. Products have the same bound, relative to the
// exact product, if no partial product is subnormal or exceeds the largest value. Integers wrap
// around, so that their sums and products are exact modulo 2^w, with w bits, in any order.
//
// The package has no state; its functions are safe for concurrent use.
package element

import "slices"

// Type is the type of an element.
type Type string

// Types, as nccl-tests and rccl-tests print them. Integers are two's complement. E4M3 and E5M2 are the
// types of OCP's OFP8 with 4 and 5 bits of exponent. nccl-tests calls them f8e4m3 and f8e5m2.
const (
	Int8     Type = "int8"
	Uint8    Type = "uint8"
	Int32    Type = "int32"
	Uint32   Type = "uint32"
	Int64    Type = "int64"
	Uint64   Type = "uint64"
	Float16  Type = "half"     // IEEE 754 binary16
	Float32  Type = "float"    // IEEE 754 binary32
	Float64  Type = "double"   // IEEE 754 binary64
	BFloat16 Type = "bfloat16" // the upper half of a float32
	E4M3     Type = "fp8_e4m3"
	E5M2     Type = "fp8_e5m2"
)

var types = []Type{Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, BFloat16, E4M3, E5M2}

// Types returns all types, in the order of nccl-tests.
func Types() []Type { return slices.Clone(types) }

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (t Type) Size() int {
	switch t {
	case Int64, Uint64, Float64:
		return 8
	case Float32, Int32, Uint32:
		return 4
	case BFloat16, Float16:
		return 2
	case Int8, Uint8, E4M3, E5M2:
		return 1
	}
	return 0
}

// Digits returns the number of binary digits up to which every whole number is exact in the type. It
// is 0 for an unknown type.
func (t Type) Digits() int {
	switch t {
	case Float64:
		return 53
	case Float32:
		return 24
	case BFloat16:
		return 8
	case Float16:
		return 11
	case E4M3:
		return 4
	case E5M2:
		return 3
	case Int8, Int32, Int64:
		return 8*t.Size() - 1
	}
	return 8 * t.Size()
}

// Exponents returns the exponents of the smallest and of the largest positive power of two that a
// floating-point type has. The smallest is a subnormal number. Both are 0 for other types.
func (t Type) Exponents() (least, most int) {
	switch t {
	case Float64:
		return -1074, 1023
	case Float32:
		return -149, 127
	case BFloat16:
		return -133, 127
	case Float16:
		return -24, 15
	case E4M3:
		return -9, 8
	case E5M2:
		return -16, 15
	}
	return 0, 0
}

// Integer reports whether elements are integers, whose results wrap around.
func (t Type) Integer() bool {
	return slices.Contains([]Type{Int8, Uint8, Int32, Uint32, Int64, Uint64}, t)
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
	Product Op = "prod"
	Max     Op = "max"
	Min     Op = "min"
	Average Op = "avg"
	// None stands for operations that combine nothing.
	None Op = "none"
)

var ops = []Op{Sum, Product, Max, Min, Average}

// Ops returns all operations that combine elements, in the order of nccl-tests. The first is the
// default.
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
	case !t.Integer() && (terms.A == 1 || terms.B == 1):
		a, b := 1.0, 1.0
		if terms.A == 1 {
			a = Scale(t, terms.Ranks)
		}
		if terms.B == 1 {
			b = Scale(t, terms.Ranks)
		}
		return weighted(t, a, b)
	case t.Integer() && terms.A+terms.B == terms.Ranks:
		return func(dst, a, b []byte) {
			sum(dst, a, b)
			divide(t, dst, terms.Ranks)
		}
	}
	return sum
}

// Scale returns 1/n, rounded to the type: the factor of an Average over n ranks.
func Scale(t Type, n int) float64 { return Scaled(t, 1, 1/float64(n)) }

// Scaled returns a number times a scale from Scale, rounded to the type.
func Scaled(t Type, value, scale float64) float64 {
	return At(t, Append(t, nil, value*scale), 0)
}
