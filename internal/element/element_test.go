package element

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
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
		for _, op := range []Op{Sum, Product, Max, Min} {
			want := func(a, b []byte) []byte { return onFloats(t, op, a, b) }
			if t.Integer() {
				want = func(a, b []byte) []byte { return onIntegers(t, op, a, b) }
			}
			f(fmt.Sprintf("%s/%s", t, op), t, combiner(t, op), byElement(t, want))
		}
		if t.Integer() {
			continue
		}
		for _, x := range []float64{1, Scale(t, 3)} {
			y := Scale(t, 7)
			want := byElement(t, func(a, b []byte) []byte {
				return onFloats(t, Sum, Append(t, nil, At(t, a, 0)*x), Append(t, nil, At(t, b, 0)*y))
			})
			f(fmt.Sprintf("%s/weighted/%v", t, x), t, weighted(t, x, y), want)
		}
	}
}

// byElement returns a Combine that computes each element by a function.
func byElement(t Type, f func(a, b []byte) []byte) Combine {
	return func(dst, a, b []byte) {
		for i, size := 0, t.Size(); i < len(dst); i += size {
			copy(dst[i:], f(a[i:i+size], b[i:i+size]))
		}
	}
}

// onFloats computes an operation on two numbers of a floating-point type.
func onFloats(t Type, op Op, a, b []byte) []byte {
	x, y := At(t, a, 0), At(t, b, 0)
	switch op {
	case Max, Min:
		want := Larger(x, y)
		if op == Min {
			want = Smaller(x, y)
		}
		if math.Float64bits(want) == math.Float64bits(x) {
			return bytes.Clone(a)
		}
		return bytes.Clone(b)
	case Product:
		if t == Float64 {
			return Append(t, nil, x*y)
		}
		return Append(t, nil, float64(float32(x)*float32(y)))
	}
	if t == Float64 {
		return Append(t, nil, x+y)
	}
	return Append(t, nil, float64(float32(x)+float32(y)))
}

// integerOf returns an element of an integer type.
func integerOf(t Type, element []byte) *big.Int {
	reversed := bytes.Clone(element)
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		slices.Reverse(reversed)
	}
	n := new(big.Int).SetBytes(reversed)
	if t.Digits()%8 != 0 && n.Bit(8*t.Size()-1) == 1 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size())))
	}
	return n
}

// onIntegers computes an operation on two integers, modulo 2^w.
func onIntegers(t Type, op Op, a, b []byte) []byte {
	x, y := integerOf(t, a), integerOf(t, b)
	switch {
	case op == Sum:
		x.Add(x, y)
	case op == Product:
		x.Mul(x, y)
	case (x.Cmp(y) < 0) == (op == Max):
		x = y
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	return AppendBits(t, nil, x.Mod(x, modulus).Uint64())
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
		half := len(data) / 2 &^ 7
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
		for _, kind := range []Type{Float32, Float64, BFloat16, Float16, E4M3, E5M2} {
			if kind == E4M3 && (math.IsInf(test.a, 0) || math.IsInf(test.b, 0)) {
				continue // it has none
			}
			for op, want := range map[Op]float64{Max: test.high, Min: test.low} {
				for _, order := range [][2]float64{{test.a, test.b}, {test.b, test.a}} {
					var a, b []byte
					for range 65 {
						a, b = appendExactly(kind, a, order[0]), appendExactly(kind, b, order[1])
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

// appendExactly appends an infinity as such, also of the type whose conversion saturates.
func appendExactly(t Type, to []byte, value float64) []byte {
	if t == E5M2 && math.IsInf(value, 0) {
		return AppendBits(t, to, map[bool]uint64{true: 0xfc, false: 0x7c}[value < 0])
	}
	return Append(t, to, value)
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
		{Float64, Terms{1, 1, 4}, 8, 12, 5}, {E4M3, Terms{1, 1, 2}, 448, 448, 448},
		{E5M2, Terms{2, 1, 4}, 3, 4, 4},
		{E4M3, Terms{1, 3, 4}, 16, 9, 13}, {Int8, Terms{1, 2, 3}, 100, 100, -18},
		{Uint8, Terms{1, 2, 3}, 250, 5, 85}, {Uint8, Terms{1, 2, 3}, 250, 10, 1},
		{Uint8, Terms{1, 1, 3}, 250, 5, 255},
		{Int8, Terms{1, 127, 128}, -128, 0, -1}, {Int8, Terms{1, 199, 200}, -128, 0, 0},
		{Uint8, Terms{1, 299, 300}, 255, 0, 0}, {Uint32, Terms{1, 1, 2}, math.MaxUint32, 0, math.MaxInt32},
		{Int64, Terms{1, 1, 2}, -1 << 53, -2, -1<<52 - 1}, {Uint64, Terms{1, 1, 2}, 1 << 63, 4, 1 << 62},
	} {
		a, b := Append(test.kind, nil, test.a), Append(test.kind, nil, test.b)
		Combiner(test.kind, Average, test.terms)(a, a, b)
		if got := At(test.kind, a, 0); got != test.want {
			t.Errorf("%s %+v of %v and %v is %v, want %v", test.kind, test.terms, test.a, test.b, got,
				test.want)
		}
	}
	if Combiner("quad", Average, Terms{1, 1, 2}) != nil || Combiner(Float32, "xor", Terms{}) != nil {
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
		for _, op := range []Op{Sum, Product, Max, Min} {
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
