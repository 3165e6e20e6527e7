package element

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestAgainstNumpyAndTorch compares with the results of both libraries for every value of both
// types of 16 bits, for every tie between values, and for pairs. testdata/vectors.py produces them.
func TestAgainstNumpyAndTorch(t *testing.T) {
	file, err := os.Open("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); lines++ {
		i := strings.LastIndex(scanner.Text(), " ")
		what, want := scanner.Text()[:i], scanner.Text()[i+1:]
		kind, what, _ := strings.Cut(what, " ")
		if got := fmt.Sprintf("%x", sha256.Sum256(vector(Type(kind), what))); got != want {
			t.Errorf("%s %s: digest %s, want %s", kind, what, got, want)
		}
	}
	if lines != 8 {
		t.Errorf("%d vectors, want 8", lines)
	}
}

// vector returns the bytes that vectors.py hashes.
func vector(kind Type, what string) []byte {
	var result []byte
	short := func(b []byte) uint16 {
		if math.IsNaN(At(kind, b, 0)) {
			return map[Type]uint16{BFloat16: 0x7fc0, Float16: 0x7e00}[kind]
		}
		return binary.NativeEndian.Uint16(b)
	}
	switch what {
	case "to float":
		for bits := range 1 << 16 {
			value := float32(At(kind, binary.NativeEndian.AppendUint16(nil, uint16(bits)), 0))
			if value != value {
				value = math.Float32frombits(0x7fc00000)
			}
			result = binary.LittleEndian.AppendUint32(result, math.Float32bits(value))
		}
	case "from float":
		var b []byte
		for step := range uint32(1 << 20) {
			for _, off := range []uint32{math.MaxUint32, 0, 1} {
				b = Append(kind, b[:0], float64(math.Float32frombits(step<<12+off)))
				result = binary.LittleEndian.AppendUint16(result, short(b))
			}
		}
	default:
		var a, b []byte
		for k := range 16 {
			for i := range 1 << 16 {
				a = binary.NativeEndian.AppendUint16(a, uint16(i))
				b = binary.NativeEndian.AppendUint16(b, uint16(i*(2*k+1)+k*40503))
			}
		}
		terms := Terms{A: 1, B: 1, Ranks: 3}
		op := Average
		if what == "sum" {
			op = Sum
		}
		Combiner(kind, op, terms)(a, a, b)
		for i := 0; i < len(a); i += 2 {
			result = binary.LittleEndian.AppendUint16(result, short(a[i:]))
		}
	}
	return result
}

// combinations calls f with all loops, each beside a loop that computes element by element.
func combinations(f func(name string, t Type, loop, scalar Combine)) {
	for _, t := range Types() {
		for op, scalar := range map[Op]func(a, b float64) float64{
			Sum: func(a, b float64) float64 {
				if t == Int32 {
					return float64(int32(a) + int32(b)) // it wraps around
				}
				return float64(float32(a) + float32(b))
			},
			Max: func(a, b float64) float64 { return float64(Larger(float32(a), float32(b))) },
			Min: func(a, b float64) float64 { return float64(Smaller(float32(a), float32(b))) },
		} {
			if t == Int32 {
				switch op { // float32 has too few digits
				case Max:
					scalar = math.Max
				case Min:
					scalar = math.Min
				}
			}
			f(fmt.Sprintf("%s/%s", t, op), t, combiner(t, op), byElement(t, scalar))
		}
		if t == Int32 {
			continue
		}
		for _, x := range []float32{1, Scale(t, 3)} {
			y := Scale(t, 7)
			want := byElement(t, func(a, b float64) float64 {
				return float64(Scaled(t, float32(a), x) + Scaled(t, float32(b), y))
			})
			f(fmt.Sprintf("%s/weighted/%v", t, x), t, weighted(t, x, y), want)
		}
	}
}

// byElement returns a Combine that computes each element by a function.
func byElement(t Type, f func(a, b float64) float64) Combine {
	return func(dst, a, b []byte) {
		for i := range len(dst) / t.Size() {
			copy(dst[i*t.Size():], Append(t, nil, f(At(t, a, i), At(t, b, i))))
		}
	}
}

// sameElements compares bits, but for NaNs.
func sameElements(t *testing.T, name string, kind Type, got, want []byte) {
	t.Helper()
	size := kind.Size()
	for i := range len(want) / size {
		x, y := At(kind, got, i), At(kind, want, i)
		if !bytes.Equal(got[i*size:][:size], want[i*size:][:size]) && !(math.IsNaN(x) && math.IsNaN(y)) {
			t.Fatalf("%s: element %d of %d is %x (%v), want %x (%v)", name, i, len(want)/size,
				got[i*size:][:size], x, want[i*size:][:size], y)
		}
	}
}

// edges are bits around which loops go wrong: zeros, subnormal numbers, ties, infinities
// and NaNs of both signs.
var edges = []uint32{
	0, 1 << 31, 1, 0x007fffff, 0x00800000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x477fefff,
	0x477ff000, 0x7f7fffff, 0x7f7f8000,
	0x7f800000, 0xff800000, 0x7f800001, 0xff800001, 0x7fc00000, 0xffffffff, 0x80000001, 0x7fffffff,
}

// TestLoops compares the loops with single operations, for many lengths, wherever elements may
// lie, and into each operand.
func TestLoops(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	combinations(func(name string, kind Type, loop, scalar Combine) {
		for length := 0; length <= 3*64; length += kind.Size() {
			offset := kind.Size() * random.IntN(16)
			memory := func() []byte {
				m := make([]byte, (offset+length+32+3)&^3)
				for i := 0; i < len(m); i += 4 {
					bits := edges[random.IntN(len(edges))] ^ uint32(random.IntN(2))<<16
					if random.IntN(3) == 0 {
						bits = random.Uint32()
					}
					binary.NativeEndian.PutUint32(m[i:], bits)
				}
				return m
			}
			a, b := memory(), memory()
			of := func(m []byte) []byte { return m[offset : offset+length] }
			want := make([]byte, length)
			scalar(want, of(a), of(b))
			for into, dst := range [][]byte{memory(), a, b} {
				before := bytes.Clone(dst)
				x, y := bytes.Clone(a), bytes.Clone(b)
				switch into {
				case 1:
					x = dst
				case 2:
					y = dst
				}
				loop(of(dst), of(x), of(y))
				sameElements(t, name, kind, of(dst), want)
				if !bytes.Equal(dst[:offset], before[:offset]) ||
					!bytes.Equal(dst[offset+length:], before[offset+length:]) {
					t.Fatalf("%s: it writes beside %d bytes", name, length)
				}
				copy(dst, before)
			}
		}
	})
}

func FuzzLoops(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0, 0, 0x80, 0x7f, 1, 0, 0, 0x80}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		half := len(data) / 2 &^ 3
		a, b := append([]byte(nil), data[:half]...), append([]byte(nil), data[half:2*half]...)
		combinations(func(name string, kind Type, loop, scalar Combine) {
			got, want := make([]byte, half), make([]byte, half)
			loop(got, a, b)
			scalar(want, a, b)
			sameElements(t, name, kind, got, want)
		})
	})
}

// TestNumbersWin holds what Max and Min are of NaNs and zeros.
func TestNumbersWin(t *testing.T) {
	nan, zero := math.NaN(), math.Copysign(0, -1)
	for _, test := range []struct{ a, b, high, low float64 }{
		{1, 2, 2, 1}, {nan, 3, 3, 3}, {nan, math.Inf(-1), math.Inf(-1), math.Inf(-1)}, {0, zero, 0, zero},
		{-1, zero, zero, -1}, {nan, nan, nan, nan},
	} {
		for _, kind := range []Type{Float32, BFloat16, Float16} {
			for op, want := range map[Op]float64{Max: test.high, Min: test.low} {
				for _, order := range [][2]float64{{test.a, test.b}, {test.b, test.a}} {
					var a, b []byte
					for range 65 {
						a, b = Append(kind, a, order[0]), Append(kind, b, order[1])
					}
					Combiner(kind, op, Terms{})(a, a, b)
					for i := range 65 {
						if got := At(kind, a, i); math.Float64bits(got) != math.Float64bits(want) &&
							!(math.IsNaN(got) && math.IsNaN(want)) {
							t.Fatalf("%s %s of %v: element %d is %v, want %v", kind, op, order, i, got, want)
						}
					}
				}
			}
		}
	}
}

// TestAverage holds which operands are weighted, and when sums are divided.
func TestAverage(t *testing.T) {
	for _, test := range []struct {
		kind       Type
		terms      Terms
		a, b, want float64
	}{
		{Float32, Terms{1, 1, 4}, 8, 12, 5}, {Float32, Terms{2, 1, 4}, 5, 16, 9},
		{Float32, Terms{1, 3, 4}, 16, 9, 13}, {Float32, Terms{2, 2, 4}, 5, 7, 12},
		{Float16, Terms{1, 1, 2}, 65504, 65504, 65504}, {BFloat16, Terms{1, 1, 2}, 3, 5, 4},
		{Int32, Terms{1, 1, 3}, 5, 6, 11}, {Int32, Terms{2, 1, 3}, 5, 6, 3},
		{Int32, Terms{1, 2, 3}, -5, -6, -3}, {Int32, Terms{1, 2, 3}, math.MaxInt32, 0, 715827882},
		{Int32, Terms{1, 2, 3}, math.MinInt32, 0, -715827882},
	} {
		a, b := Append(test.kind, nil, test.a), Append(test.kind, nil, test.b)
		Combiner(test.kind, Average, test.terms)(a, a, b)
		if got := At(test.kind, a, 0); got != test.want {
			t.Errorf("%s %+v of %v and %v is %v, want %v", test.kind, test.terms, test.a, test.b, got,
				test.want)
		}
	}
	if Combiner("double", Average, Terms{1, 1, 2}) != nil || Combiner(Float32, "prod", Terms{}) != nil {
		t.Error("there are loops for what there is not")
	}
}

// TestPrepareAndFinish checks that an average by sums equals the average that ranks compute from
// each other's elements, and that other operations leave memory unchanged.
func TestPrepareAndFinish(t *testing.T) {
	const ranks = 3
	random := rand.New(rand.NewPCG(6, 3))
	for _, kind := range Types() {
		own := make([][]byte, ranks)
		for rank := range own {
			for range 101 {
				own[rank] = Append(kind, own[rank], float64(random.IntN(120)-60))
			}
		}
		want := bytes.Clone(own[0])
		Combiner(kind, Average, Terms{1, 1, ranks})(want, want, own[1])
		Combiner(kind, Average, Terms{2, 1, ranks})(want, want, own[2])
		before := bytes.Clone(own[0])
		for _, op := range []Op{Sum, Max, Min} {
			Prepare(kind, op, ranks, own[0])
			Finish(kind, op, ranks, own[0])
		}
		if !bytes.Equal(own[0], before) {
			t.Errorf("%s: other operations than averages change elements", kind)
		}
		sum := combiner(kind, Sum)
		for rank := range own {
			Prepare(kind, Average, ranks, own[rank])
		}
		sum(own[0], own[0], own[1])
		sum(own[0], own[0], own[2])
		Finish(kind, Average, ranks, own[0])
		if !bytes.Equal(own[0], want) {
			t.Errorf("%s: averages %x, want %x", kind, own[0], want)
		}
	}
}

// TestDivision compares with the processor's, around every multiple.
func TestDivision(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 2))
	for n := 2; n < 1<<21; n += 1 + n/100 {
		average := Combiner(Int32, Average, Terms{1, n - 1, n})
		var a []byte
		var want []int32
		for i := range 101 {
			value := int32(random.IntN(math.MaxInt32/n))*int32(n) + int32(random.IntN(3)-1)
			switch {
			case i < 3:
				value = [3]int32{math.MaxInt32, math.MinInt32, math.MaxInt32 / int32(n) * int32(n)}[i]
			case random.IntN(2) == 0:
				value = -value
			}
			a = binary.NativeEndian.AppendUint32(a, uint32(value))
			want = append(want, value/int32(n))
		}
		average(a, a, make([]byte, len(a)))
		for i := range want {
			if got := int32(At(Int32, a, i)); got != want[i] {
				t.Fatalf("quotient %d by %d is %d, want %d", i, n, got, want[i])
			}
		}
	}
}

// BenchmarkCombine is bytes of the result a second, in a cache and in memory; copy is the
// machine's memmove.
func BenchmarkCombine(b *testing.B) {
	for _, size := range []int{256 << 10, 64 << 20} {
		dst, x := make([]byte, size), make([]byte, size)
		for i := 0; i < size; i += 4 {
			binary.NativeEndian.PutUint32(x[i:], 0x3f803f80)
		}
		b.Run(fmt.Sprintf("%dKiB/copy", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(dst, x)
			}
		})
		for _, t := range Types() {
			for _, op := range Ops() {
				combine := Combiner(t, op, Terms{2, 1, 3})
				b.Run(fmt.Sprintf("%dKiB/%s/%s", size>>10, t, op), func(b *testing.B) {
					b.SetBytes(int64(size))
					for b.Loop() {
						combine(dst, dst, x)
					}
				})
			}
		}
	}
}
