package collective

import (
	"bytes"
	"fmt"
	"math"
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

// fill sets the data of a rank.
func fill(t testing.TB, c PatternConfig, memory []byte, iteration int) {
	t.Helper()
	p, err := newData(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Fill(memory, iteration, 0)
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

// checkExact compares a result with the mathematically exact result of an operation.
func checkExact(t *testing.T, c PatternConfig, result []byte, iteration int) {
	t.Helper()
	inputs := make([][]byte, c.Ranks)
	for c.Rank = range c.Ranks {
		inputs[c.Rank] = make([]byte, len(result))
		fill(t, c, inputs[c.Rank], iteration)
	}
	for i := range len(result) / c.Type.Size() {
		sum, low, high := new(big.Rat), math.Inf(1), math.Inf(-1)
		for _, input := range inputs {
			value := element.At(c.Type, input, i)
			sum.Add(sum, new(big.Rat).SetFloat64(value))
			low, high = min(low, value), max(high, value)
		}
		want, _ := sum.Float64()
		tolerance := 0.0
		switch c.Op {
		case element.Max:
			want = high
		case element.Min:
			want = low
		case element.Average:
			// 1/n, and each product, are rounded once: by 2^-digits at most.
			if want /= float64(c.Ranks); c.Type == element.Int32 {
				want = math.Trunc(want)
			} else {
				tolerance = want * 2.1 / float64(int(1)<<c.Type.Digits())
			}
		}
		if got := element.At(c.Type, result, i); math.Abs(got-want) > tolerance {
			t.Fatalf("element %d is %v, want %v", i, got, want)
		}
	}
}

// TestPatternLimits holds for how many ranks there are data, which differ from each other.
func TestPatternLimits(t *testing.T) {
	for kind, most := range map[element.Type]int{element.BFloat16: 255, element.Float16: 2047} {
		for _, op := range []element.Op{element.Sum, element.Average} {
			if p, err := NewPattern(PatternConfig{Ranks: most + 1, Type: kind, Op: op}); err == nil {
				t.Errorf("%s %s of %d ranks: values up to %d", kind, op, most+1, p.limit)
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
	if _, err := NewPattern(PatternConfig{Ranks: 2, Type: "double"}); err == nil {
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
			if kind.Size() == 2 {
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
