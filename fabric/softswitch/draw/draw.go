// Package draw draws repeatable random numbers: each number is a pure function of the values it is
// drawn for.
//
// A sequence of draws is SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
// Generators, OOPSLA 2014), whose n-th number can be computed without the numbers before it. The
// generators of math/rand/v2 would have to be seeded for each draw: PCG gives correlated first
// numbers for similar seeds, and ChaCha8 takes hundreds of nanoseconds.
//
// All functions are safe for concurrent use.
package draw

import (
	"math/bits"

	"railbed/internal/units"
)

// The constants of SplitMix64, for programs that draw in another language.
const (
	// Golden is 2^64 divided by the golden ratio, made odd: SplitMix64's increment.
	Golden = 0x9e3779b97f4a7c15
	// First and Second are the factors of Mix.
	First  = 0xbf58476d1ce4e5b9
	Second = 0x94d049bb133111eb
)

// Purposes of the draws of a fault of packets. The numbers are part of the meaning of a seed.
const (
	FaultHit  = 1
	FaultBit  = 2
	FaultFlow = 3
)

// Mix maps 64 bits to 64 bits, one to one, so that each bit of the result
// depends on every bit of x. It is Stafford's variant 13 of MurmurHash3's
// finaliser, as in SplitMix64.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * First
	x = (x ^ x>>27) * Second
	return x ^ x>>31
}

// Nth returns number n of the sequence with the given seed.
func Nth(seed, n uint64) uint64 { return Mix(seed + n*Golden) }

// Pair returns a number for an ordered pair of numbers.
func Pair(a, b uint64) uint64 { return Nth(Mix(a+Golden), b) }

// Seed derives a seed for a list of names from a testbed's seed. The boundaries of names matter:
// "ab", "c" differs from "a", "bc".
func Seed(seed uint64, names ...string) uint64 {
	for _, name := range names {
		// FNV-1a over the name and then its length, so that boundaries of names matter.
		hash := uint64(0xcbf29ce484222325)
		for i := range len(name) {
			hash = (hash ^ uint64(name[i])) * 0x100000001b3
		}
		seed = Pair(Pair(seed, hash), uint64(len(name)))
	}
	return seed
}

// Within maps a drawn number to 0 .. n-1. No value is more than 1 + n/2^64 times
// as likely as another.
func Within(drawn, n uint64) uint64 {
	high, _ := bits.Mul64(drawn, n)
	return high
}

// Chance is a probability in integers, for comparison with draws. Its zero value never happens.
type Chance struct {
	below  uint64
	always bool
}

// NewChance returns the chance of an exact ratio. Of the 2^64 possible draws, the ratio's share,
// rounded up to a whole number, hits.
func NewChance(r units.Ratio) Chance {
	switch {
	case r.IsZero():
		return Chance{}
	case r.Num >= r.Den:
		return Chance{always: true}
	}
	share, rest := bits.Div64(r.Num, 0, r.Den)
	if rest != 0 {
		share++
	}
	return Chance{below: share}
}

// Happens reports whether a draw hits the chance.
func (c Chance) Happens(drawn uint64) bool { return drawn < c.below || c.always }

// Below returns the number below which a draw hits the chance, and whether all draws hit it.
func (c Chance) Below() (below uint64, always bool) { return c.below, c.always }
