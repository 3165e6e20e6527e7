package draw

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"railbed/internal/units"
)

// TestSplitMix holds the sequence to SplitMix64's published numbers: the first
// five of seed 1234567 in the reference (prng.di.unimi.it/splitmix64.c), whose
// state advances before the first number.
func TestSplitMix(t *testing.T) {
	want := []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
		16408922859458223821}
	for i, w := range want {
		if got := Nth(1234567, uint64(i+1)); got != w {
			t.Errorf("number %d of seed 1234567: got %d, want %d", i+1, got, w)
		}
	}
}

// TestBitsAreFair counts the ones of each bit over the inputs that the fabric
// has: sequences of small numbers, seeds that differ in one bit, and several
// purposes of one draw.
func TestBitsAreFair(t *testing.T) {
	const count = 1 << 18
	inputs := map[string]func(i uint64) uint64{
		"sequence":       func(i uint64) uint64 { return Nth(0, i) },
		"seeds":          func(i uint64) uint64 { return Nth(i, 1) },
		"pairs":          func(i uint64) uint64 { return Pair(i>>9, i&511) },
		"purposes":       func(i uint64) uint64 { return Nth(Nth(7, i>>2), i&3) },
		"difference":     func(i uint64) uint64 { return Nth(0, i) ^ Nth(0, i+1) },
		"near seeds":     func(i uint64) uint64 { return Nth(1, i) ^ Nth(2, i) },
		"purposes cross": func(i uint64) uint64 { return Nth(Nth(7, i), 1) ^ Nth(Nth(7, i), 2) },
		"pair swapped":   func(i uint64) uint64 { return Pair(i, i+1) ^ Pair(i+1, i) },
	}
	for name, input := range inputs {
		var ones [64]int
		var bytes [8][256]int
		for i := range uint64(count) {
			x := input(i)
			for b := range ones {
				ones[b] += int(x >> b & 1)
			}
			for b := range bytes {
				bytes[b][byte(x>>(8*b))]++
			}
		}
		for b, n := range ones {
			// The standard deviation is sqrt(count)/2; 512 bits in all are
			// looked at, so that five of them are far out.
			if sigma := math.Sqrt(count) / 2; math.Abs(float64(n)-count/2) > 5*sigma {
				t.Errorf("%s: bit %d is set in %d of %d", name, b, n, count)
			}
		}
		for b := range bytes {
			chi := 0.0
			for _, n := range bytes[b] {
				d := float64(n) - count/256.0
				chi += d * d / (count / 256.0)
			}
			// 255 degrees of freedom: mean 255, deviation sqrt(510).
			if math.Abs(chi-255) > 5*math.Sqrt(510) {
				t.Errorf("%s: byte %d: chi-square is %.0f, want 255 +- 113", name, b, chi)
			}
		}
	}
}

// TestAvalanche flips each bit of an input: half of the result's bits change.
func TestAvalanche(t *testing.T) {
	const count = 20000
	r := rand.New(rand.NewPCG(1, 2))
	for b := range 64 {
		changed := 0
		for range count {
			x := r.Uint64()
			changed += bits.OnesCount64(Mix(x) ^ Mix(x^1<<b))
		}
		// 64 fair bits: deviation 4 for one, 4/sqrt(count) for the mean.
		if mean := float64(changed) / count; math.Abs(mean-32) > 0.5 {
			t.Errorf("flipping bit %d changes %.2f bits in the mean, want 32", b, mean)
		}
	}
}

func TestSeedKnowsNames(t *testing.T) {
	seen := map[uint64][]string{}
	for _, names := range [][]string{nil, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"c", "ab"},
		{"leaf1--spine1", "a-to-b"}, {"leaf1--spine1", "b-to-a"}} {
		for seed := range uint64(4) {
			s := Seed(seed, names...)
			if other, found := seen[s]; found {
				t.Errorf("%q and %q have one seed", names, other)
			}
			seen[s] = names
		}
	}
}

func TestChance(t *testing.T) {
	const top = math.MaxUint64
	for _, c := range []struct {
		ratio   units.Ratio
		largest uint64 // that happens
		none    bool
	}{
		{units.Ratio{}, 0, true},
		{units.Ratio{Num: 0, Den: 5}, 0, true},
		{units.Ratio{Num: 1, Den: 1}, top, false},
		{units.Ratio{Num: 1, Den: 2}, 1<<63 - 1, false},
		{units.Ratio{Num: 1, Den: 4}, 1<<62 - 1, false},
		// 2^64/3 is 6148914691236517205.33: numbers up to its floor lie below it.
		{units.Ratio{Num: 1, Den: 3}, 6148914691236517205, false},
		{units.Ratio{Num: 1, Den: top}, 1, false},
		{units.Ratio{Num: top - 1, Den: top}, top - 1, false},
	} {
		chance := NewChance(c.ratio)
		if chance.Happens(0) == c.none {
			t.Errorf("%v: 0 happens is %t", c.ratio, !c.none)
		}
		if c.none {
			continue
		}
		if !chance.Happens(c.largest) || c.largest != top && chance.Happens(c.largest+1) {
			t.Errorf("%v: the largest draw that happens is not %d", c.ratio, c.largest)
		}
	}
}

func TestWithin(t *testing.T) {
	if Within(math.MaxUint64, 7) != 6 || Within(0, 7) != 0 || Within(1<<63, 10) != 5 ||
		Within(math.MaxUint64, 0) != 0 {
		t.Error("the ends of a range are missed")
	}
}

func BenchmarkDraw(b *testing.B) {
	sum := uint64(0)
	for i := range uint64(b.N) {
		sum += Nth(Nth(sum, i), 1)
	}
	if sum == 0 {
		b.Fatal("unlikely")
	}
}
