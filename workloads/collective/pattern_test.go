package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPatternSumsAreExact adds the ranks' data in float64, and in float32 in
// two orders.
func TestPatternSumsAreExact(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8, 33, 512} {
		const count = patternLen + 1000
		exact := make([]float64, count)
		forward, backward := make([]float32, count), make([]float32, count)
		buffer := make([]float32, count)
		var last *Pattern
		add := func(to []float32, rank int) {
			last = NewPattern(rank, ranks)
			last.Fill(buffer, 3)
			for i, v := range buffer {
				to[i] += v
			}
		}
		step := max(1, ranks/8) // all ranks of a large job would take long
		for rank := 0; rank < ranks; rank += step {
			add(forward, rank)
			for i, v := range buffer {
				if v < 1 || v != float32(int(v)) {
					t.Fatalf("element %d is %v, want a whole number from 1", i, v)
				}
				exact[i] += float64(v)
			}
		}
		for rank := (ranks - 1) / step * step; rank >= 0; rank -= step {
			add(backward, rank)
		}
		for i := range exact {
			if float64(forward[i]) != exact[i] || float64(backward[i]) != exact[i] {
				t.Fatalf("%d ranks: element %d sums to %v and %v, want %v", ranks, i, forward[i], backward[i], exact[i])
			}
			if step == 1 && float64(last.expected[(i+shifted(3))%patternLen]) != exact[i] {
				t.Fatalf("%d ranks: element %d is expected to be %v, sum %v", ranks, i, last.expected[i], exact[i])
			}
		}
		if biggest := slices.Max(last.expected); biggest > 1<<24 {
			t.Errorf("%d ranks: a sum of %v is not exact in a float32", ranks, biggest)
		}
	}
}

// TestPatternSeesFaults does to a right result what a broken all-reduce does.
func TestPatternSeesFaults(t *testing.T) {
	const ranks, count, iteration = 4, 300_000, 2
	inputs := make([][]float32, ranks)
	for rank := range inputs {
		inputs[rank] = make([]float32, count)
		NewPattern(rank, ranks).Fill(inputs[rank], iteration)
	}
	p := NewPattern(0, ranks)
	right := func() []float32 {
		result := make([]float32, count)
		for _, input := range inputs {
			for i, v := range input {
				result[i] += v
			}
		}
		return result
	}
	if wrong := p.Wrong(right(), iteration); wrong != 0 {
		t.Fatalf("%d elements of the right result are wrong", wrong)
	}
	const from, to = 65536, 131072 // a slice of 256 KiB
	for name, damage := range map[string]func(result []float32){
		"a rank missing": func(r []float32) { combine(r[from:to], inputs[1][from:to], -1) },
		"a rank twice":   func(r []float32) { combine(r[from:to], inputs[1][from:to], 1) },
		"one rank for another": func(r []float32) {
			combine(r[from:to], inputs[1][from:to], -1)
			combine(r[from:to], inputs[2][from:to], 1)
		},
		"slices exchanged":      func(r []float32) { copy(r[from:to], right()[0:from]) },
		"shifted by an element": func(r []float32) { copy(r[from:to], right()[from+1:]) },
		"own input":             func(r []float32) { copy(r[from:to], inputs[0][from:to]) },
		"zeros":                 func(r []float32) { clear(r[from:to]) },
	} {
		result := right()
		damage(result)
		// Values of up to 22 bits agree by chance once in a slice at most or so.
		if wrong := p.Wrong(result, iteration); wrong < to-from-3 || wrong > to-from {
			t.Errorf("%s: %d elements wrong, want about %d", name, wrong, to-from)
		}
	}
	if wrong := p.Wrong(right(), iteration+1); wrong < count-10 {
		t.Errorf("the result of another iteration: %d elements wrong, want about %d", wrong, count)
	}
	one := right()
	one[count-1]++
	if wrong := p.Wrong(one, iteration); wrong != 1 {
		t.Errorf("one wrong element: %d counted", wrong)
	}
}

func combine(to, from []float32, sign float32) {
	for i, v := range from {
		to[i] += sign * v
	}
}

func TestSum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		for offset := range 4 { // not every slice is aligned to 16 bytes
			a, b, dst := make([]float32, n+offset)[offset:], make([]float32, n), make([]float32, n+8)
			for i := range n {
				a[i], b[i] = random.Float32(), random.Float32()
			}
			sum(dst[4:][:n], a, b)
			for i, got := range dst {
				want := float32(0)
				if i >= 4 && i < n+4 {
					want = a[i-4] + b[i-4]
				}
				if got != want {
					t.Fatalf("%d elements: element %d is %v, want %v", n, i-4, got, want)
				}
			}
			into := slices.Clone(a)
			sum(into, into, b)
			if !slices.Equal(into, dst[4:][:n]) {
				t.Fatalf("%d elements: sum into the first operand differs", n)
			}
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, size := range []int{sliceBytes, 64 << 20} {
		dst, other := make([]float32, size/ElementSize), make([]float32, size/ElementSize)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				sum(dst, dst, other)
			}
		})
	}
}
