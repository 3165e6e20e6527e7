package element

import "golang.org/x/sys/cpu"

// vectors reports whether the processor has the instructions that the loops in assembly use:
// Intel's have them since 2013 and AMD's since 2015.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasF16C

// block is the largest number of bytes that one iteration of a loop processes.
const block = 64

// Loops over n bytes, a positive multiple of block.
type (
	loop         func(dst, a, b *byte, n int)
	weightedLoop func(dst, a, b *byte, n int, x, y float32)
)

//go:noescape
func addFloats(dst, a, b *byte, n int)

//go:noescape
func largerFloats(dst, a, b *byte, n int)

//go:noescape
func smallerFloats(dst, a, b *byte, n int)

//go:noescape
func weighFloats(dst, a, b *byte, n int, x, y float32)

//go:noescape
func addInts(dst, a, b *byte, n int)

//go:noescape
func largerInts(dst, a, b *byte, n int)

//go:noescape
func smallerInts(dst, a, b *byte, n int)

//go:noescape
func addBFloats(dst, a, b *byte, n int)

//go:noescape
func largerBFloats(dst, a, b *byte, n int)

//go:noescape
func smallerBFloats(dst, a, b *byte, n int)

//go:noescape
func weighBFloats(dst, a, b *byte, n int, x, y float32)

//go:noescape
func addHalves(dst, a, b *byte, n int)

//go:noescape
func largerHalves(dst, a, b *byte, n int)

//go:noescape
func smallerHalves(dst, a, b *byte, n int)

//go:noescape
func weighHalves(dst, a, b *byte, n int, x, y float32)

// divideInts divides each int32 of n bytes. It moves the integer away from 0 by 1/2, multiplies it
// by 1/divisor and truncates the product. For divisors below 2^20 the result is the truncated
// quotient. The exact product is at least 1/2 of 1/divisor away from a whole number, and the
// computed product is off by at most 2^-21.
//
//go:noescape
func divideInts(memory *byte, n int, inverse float64)

var loops = map[Type]map[Op]loop{
	Float32:  {Sum: addFloats, Max: largerFloats, Min: smallerFloats},
	BFloat16: {Sum: addBFloats, Max: largerBFloats, Min: smallerBFloats},
	Float16:  {Sum: addHalves, Max: largerHalves, Min: smallerHalves},
	Int32:    {Sum: addInts, Max: largerInts, Min: smallerInts},
}

var weightedLoops = map[Type]weightedLoop{Float32: weighFloats, BFloat16: weighBFloats, Float16: weighHalves}

func combiner(t Type, op Op) Combine {
	run, rest := loops[t][op], plain(t, op)
	if !vectors || run == nil {
		return rest
	}
	return blocks(run, rest)
}

func weighted(t Type, x, y float32) Combine {
	run, rest := weightedLoops[t], plainWeighted(t, x, y)
	if !vectors || run == nil {
		return rest
	}
	return blocks(func(dst, a, b *byte, n int) { run(dst, a, b, n, x, y) }, rest)
}

func divide(memory []byte, n int) {
	whole := 0
	if vectors && n < 1<<20 {
		whole = len(memory) &^ (block - 1)
	}
	if whole > 0 {
		divideInts(&memory[0], whole, 1/float64(n))
	}
	plainDivide(memory[whole:], n)
}

// blocks runs a loop over the whole blocks and calls rest for the remainder.
func blocks(run loop, rest Combine) Combine {
	return func(dst, a, b []byte) {
		whole := len(dst) &^ (block - 1)
		a, b = a[:len(dst)], b[:len(dst)]
		if whole > 0 {
			run(&dst[0], &a[0], &b[0], whole)
		}
		rest(dst[whole:], a[whole:], b[whole:])
	}
}
