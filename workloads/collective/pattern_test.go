package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"railbed/internal/element"
)

func newPattern(t testing.TB, c PatternConfig) *Pattern {
	t.Helper()
	p, err := NewPattern(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill sets the data of a rank. It draws only these elements.
func fill(t testing.TB, c PatternConfig, memory []byte, iteration int) {
	t.Helper()
	p, err := c.values()
	if err != nil {
		t.Fatal(err)
	}
	for i, into := 0, memory[:0]; len(into) < len(memory); i++ {
		into = p.append(into, c.Rank, (shifted(iteration)+i)%patternLen)
	}
}

// fold makes a result of some ranks' data in their order, in the arithmetic of the type.
func fold(t testing.TB, c PatternConfig, ranks []int, iteration, count int) []byte {
	t.Helper()
	var result []byte
	for i, rank := range ranks {
		c.Rank = rank
		input := make([]byte, count*c.Type.Size())
		fill(t, c, input, iteration)
		if i == 0 {
			result = input
			continue
		}
		element.Combiner(c.Type, c.Op, element.Terms{A: i, B: 1, Ranks: c.Ranks})(result, result, input)
	}
	return result
}

// TestPatternsAreExact combines the ranks' data in two orders, and as rational numbers.
func TestPatternsAreExact(t *testing.T) {
	const count, iteration = 300, 3
	for _, kind := range element.Types() {
		for _, op := range element.Ops() {
			for _, ranks := range []int{1, 2, 3, 11} {
				t.Run(fmt.Sprintf("%s/%s/ranks=%d", kind, op, ranks), func(t *testing.T) {
					c := PatternConfig{Ranks: ranks, Type: kind, Op: op}
					order := make([]int, ranks)
					for i := range order {
						order[i] = i
					}
					forward := fold(t, c, order, iteration, count)
					slices.Reverse(order)
					backward := fold(t, c, order, iteration, count)
					p := newPattern(t, c)
					if ranks == 1 && op == element.Average {
						return // nothing is combined
					}
					if wrong := p.Wrong(forward, iteration, 0); wrong != 0 ||
						!bytes.Equal(forward, backward) {
						t.Fatalf("%d of %d elements are wrong, by another order it is the same: %v", wrong,
							count, bytes.Equal(forward, backward))
					}
					checkExact(t, c, forward, iteration)
				})
			}
		}
	}
}

// checkExact compares a result with the mathematically exact result of an operation, of integers modulo
// 2^w.
func checkExact(t *testing.T, c PatternConfig, result []byte, iteration int) {
	t.Helper()
	inputs := make([][]byte, c.Ranks)
	for c.Rank = range c.Ranks {
		inputs[c.Rank] = make([]byte, len(result))
		fill(t, c, inputs[c.Rank], iteration)
	}
	for i := range len(result) / c.Type.Size() {
		sum, product, low, high := new(big.Rat), big.NewRat(1, 1), new(big.Rat), new(big.Rat)
		for rank, input := range inputs {
			value := exactly(c.Type, input, i)
			sum.Add(sum, value)
			product.Mul(product, value)
			if rank == 0 || value.Cmp(low) < 0 {
				low = value
			}
			if rank == 0 || value.Cmp(high) > 0 {
				high = value
			}
		}
		want := map[element.Op]*big.Rat{element.Sum: sum, element.Product: product, element.Max: high,
			element.Min: low, element.Average: sum}[c.Op]
		if c.Type.Integer() {
			want = wrapped(c.Type, want)
		}
		tolerance := new(big.Rat)
		if c.Op == element.Average {
			if want.Quo(want, big.NewRat(int64(c.Ranks), 1)); c.Type.Integer() {
				want.SetInt(new(big.Int).Quo(want.Num(), want.Denom())) // towards 0
			} else {
				// 1/n, and each product, are rounded once: by 2^-digits at most.
				tolerance.Mul(want, big.NewRat(21, 10<<c.Type.Digits()))
			}
		}
		got := exactly(c.Type, result, i)
		if off := new(big.Rat).Sub(got, want); off.Abs(off).Cmp(tolerance) > 0 {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

// exactly returns an element as a rational number.
func exactly(t element.Type, memory []byte, i int) *big.Rat {
	switch t {
	case element.Int64:
		return new(big.Rat).SetInt64(int64(binary.NativeEndian.Uint64(memory[8*i:])))
	case element.Uint64:
		return new(big.Rat).SetUint64(binary.NativeEndian.Uint64(memory[8*i:]))
	}
	return new(big.Rat).SetFloat64(element.At(t, memory, i))
}

// wrapped returns a whole number modulo 2^w, as a value of the type.
func wrapped(t element.Type, n *big.Rat) *big.Rat {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	whole := new(big.Int).Mod(n.Num(), modulus)
	if t.Digits()%8 != 0 && whole.Bit(8*t.Size()-1) == 1 {
		whole.Sub(whole, modulus)
	}
	return new(big.Rat).SetInt(whole)
}

// TestPatternLimits holds for how many ranks there are data.
func TestPatternLimits(t *testing.T) {
	// The most ranks of the list below whose average exists. The quotient of more integers is 0. With
	// more ranks no number times the rounded 1/n is a whole number.
	most := map[element.Type]int{element.Int8: 100, element.Uint8: 255, element.E4M3: 256,
		element.E5M2: 4096, element.Float16: 4096}
	for _, kind := range element.Types() {
		for _, op := range element.Ops() {
			for _, ranks := range []int{1, 2, 7, 8, 64, 100, 255, 256, 4096, 1 << 20} {
				p, err := PatternConfig{Ranks: ranks, Type: kind, Op: op}.values()
				none := op == element.Average && most[kind] > 0 && ranks > most[kind]
				if none != (err != nil) {
					t.Errorf("%s %s of %d ranks: %v", kind, op, ranks, err)
				}
				if err == nil && p.limit < 2 && (op != element.Sum || kind.Size() > 1) {
					t.Errorf("%s %s of %d ranks: up to %d", kind, op, ranks, p.limit)
				}
			}
		}
	}
	for _, kind := range []element.Type{element.BFloat16, element.Float16} {
		for ranks := 1; ranks < 1<<kind.Digits(); ranks++ {
			p, err := PatternConfig{Ranks: ranks, Type: kind, Op: element.Average}.values()
			if err != nil || p.limit < fewValues-1 {
				t.Errorf("%s average of %d ranks: %v, %+v", kind, ranks, err, p)
			}
		}
	}
	if _, err := NewPattern(PatternConfig{Ranks: 2, Type: "quad"}); err == nil {
		t.Error("there are data of a type that there is not")
	}
}

// TestPatternOfManyRanks holds that data of many ranks still tell places
// and ranks apart, although a sum of them has few digits.
func TestPatternOfManyRanks(t *testing.T) {
	const count, iteration = 4000, 1
	order := make([]int, 128)
	for i := range order {
		order[i] = i
	}
	var c PatternConfig
	var right []byte
	var p *Pattern
	for _, c = range []PatternConfig{{Ranks: 64, Type: element.BFloat16, Op: element.Average},
		{Ranks: 128, Type: element.BFloat16, Op: element.Sum}} {
		right, p = fold(t, c, order[:c.Ranks], iteration, count), newPattern(t, c)
		if wrong := p.Wrong(right, iteration, 0); wrong != 0 {
			t.Errorf("%+v: %d of %d elements are wrong", c, wrong, count)
		}
	}
	missing := fold(t, c, order[1:], iteration, count)
	if wrong := p.Wrong(missing, iteration, 0); wrong < count/10 {
		t.Errorf("without rank 0 %d of %d elements are wrong, want one in four", wrong, count)
	}
	if wrong := p.Wrong(right[2*1024:], iteration, 0); wrong < (count-1024)*9/10 {
		t.Errorf("of another place %d of %d elements are wrong, want nearly all", wrong, count-1024)
	}
}

// TestPatternSeesFaults does to a right result what a broken all-reduce does.
func TestPatternSeesFaults(t *testing.T) {
	const count, iteration = 300_000, 2
	for _, kind := range element.Types() {
		c := PatternConfig{Ranks: 4, Type: kind, Op: element.Sum}
		size := kind.Size()
		inputs := make([][]byte, c.Ranks)
		for rank := range inputs {
			inputs[rank] = fold(t, c, []int{rank}, iteration, count)
		}
		p := newPattern(t, c)
		right := fold(t, c, []int{0, 1, 2, 3}, iteration, count)
		const from, to = 65536, 131072 // a slice of 256 KiB
		slice := func(b []byte, from, to int) []byte { return b[from*size : to*size] }
		sum := func(ranks ...int) []byte { return slice(fold(t, c, ranks, iteration, count), from, to) }
		for name, damaged := range map[string][]byte{
			"a rank missing":        sum(0, 2, 3),
			"a rank twice":          sum(0, 1, 1, 2, 3),
			"one rank for another":  sum(0, 2, 2, 3),
			"slices exchanged":      slice(right, 0, from),
			"shifted by an element": slice(right, from+1, to+1),
			"own input":             slice(inputs[0], from, to),
			"zeros":                 make([]byte, (to-from)*size),
		} {
			result := slices.Clone(right)
			copy(slice(result, from, to), damaged)
			// Values of few digits agree by chance: those of bfloat16 are up to 63 here.
			least := uint64(to - from - 3)
			switch {
			case kind.Size() == 1 && !kind.Integer():
				least = (to - from) / 3
			case kind.Size() <= 2:
				least = (to - from) * 9 / 10
			}
			if wrong := p.Wrong(result, iteration, 0); wrong < least || wrong > to-from {
				t.Errorf("%s, %s: %d elements wrong, want about %d", kind, name, wrong, to-from)
			}
		}
		if wrong := p.Wrong(right, iteration, 0); wrong != 0 {
			t.Errorf("%s: %d elements of the right result are wrong", kind, wrong)
		}
		if wrong := p.Wrong(right, iteration+1, 0); wrong < count*9/10 {
			t.Errorf("%s: the result of another iteration: %d elements wrong, want about %d", kind, wrong,
				count)
		}
		one := slices.Clone(right)
		one[len(one)-1] ^= 1
		if wrong := p.Wrong(one, iteration, 0); wrong != 1 {
			t.Errorf("%s: one wrong element: %d counted", kind, wrong)
		}
	}
}
