package element

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
	"testing"
)

// fp8 is a type of 8 bits by the definitions of OFP8, table 1.
type fp8 struct {
	exponentBits, bias int
	from               func(uint8) float32
	to                 func(float32) uint8
	// literal are values that the specification lists, by code.
	literal map[uint8]float64
	nans    []uint8 // codes without sign
	most    uint8   // the largest finite code
}

var fp8s = map[Type]fp8{
	E4M3: {4, 7, FromE4M3, ToE4M3, map[uint8]float64{
		0x00: 0, 0x01: 0x1p-9, 0x07: 0.875 * 0x1p-6, 0x08: 0x1p-6, 0x38: 1, 0x39: 1.125, 0x7e: 448,
		0xfe: -448, 0xb8: -1,
	}, []uint8{0x7f}, 0x7e},
	E5M2: {5, 15, FromE5M2, ToE5M2, map[uint8]float64{
		0x00: 0, 0x01: 0x1p-16, 0x03: 0.75 * 0x1p-14, 0x04: 0x1p-14, 0x3c: 1, 0x3d: 1.25, 0x7b: 57344,
		0xfb: -57344, 0x7c: math.Inf(1), 0xfc: math.Inf(-1),
	}, []uint8{0x7d, 0x7e, 0x7f}, 0x7b},
}

// exact returns the value of a finite code, from its bits: (-1)^s 2^(E-bias) (1 + M/2^m), or for
// E = 0 (-1)^s 2^(1-bias) M/2^m.
func (f fp8) exact(code uint8) *big.Rat {
	m := 7 - f.exponentBits
	exponent, mantissa := int(code&0x7f)>>m, int64(code)&(1<<m-1)
	value := big.NewRat(mantissa, 1<<m)
	if exponent > 0 {
		value.Add(value, big.NewRat(1, 1))
	}
	value.Mul(value, power(max(exponent, 1)-f.bias))
	if code >= 0x80 {
		value.Neg(value)
	}
	return value
}

// power returns 2^e.
func power(e int) *big.Rat {
	p := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(max(e, -e))))
	if e < 0 {
		p.Inv(p)
	}
	return p
}

// TestFP8Values compares all 256 codes of both types with their definition, and converts them back.
func TestFP8Values(t *testing.T) {
	for kind, f := range fp8s {
		for code, want := range f.literal {
			if got := f.from(code); float64(got) != want {
				t.Errorf("%s %#x is %v, want %v", kind, code, got, want)
			}
		}
		nans := map[uint8]bool{}
		for _, code := range f.nans {
			nans[code], nans[code|0x80] = true, true
		}
		for i := range 256 {
			code, back := uint8(i), uint8(i)
			got := f.from(code)
			switch {
			case nans[code]:
				if back = code&0x80 | 0x7f; got == got {
					t.Errorf("%s %#x is %v, want a NaN", kind, code, got)
				}
				got = math.Float32frombits(uint32(code)<<24 | 0x7fc00000) // with its sign
			case code&0x7f > f.most:
				if back = code&0x80 | f.most; !math.IsInf(float64(got), int(int8(code))) {
					t.Errorf("%s %#x is %v, want an infinity", kind, code, got)
				}
			case new(big.Rat).SetFloat64(float64(got)).Cmp(f.exact(code)) != 0 ||
				math.Signbit(float64(got)) != (code >= 0x80):
				t.Errorf("%s %#x is %v, want %v", kind, code, got, f.exact(code))
			}
			if again := f.to(got); again != back {
				t.Errorf("%s %#x is %v, whose code is %#x, want %#x", kind, code, got, again, back)
			}
		}
	}
}

// nearest returns the code of the value nearest to x. values has the values of the codes from 0 on. Of two
// codes it returns the even one.
func nearest(values []*big.Rat, x *big.Rat) uint8 {
	above := min(sort.Search(len(values), func(i int) bool { return values[i].Cmp(x) >= 0 }), len(values)-1)
	below := max(above-1, 0)
	up, down := new(big.Rat).Sub(values[above], x), new(big.Rat).Sub(x, values[below])
	if order := down.Cmp(up.Abs(up)); order < 0 || order == 0 && below%2 == 0 {
		return uint8(below)
	}
	return uint8(above)
}

// TestToFP8 compares conversions with the nearest value by exact arithmetic: of random float32, of
// every value, of the ties between values, and of their neighbours.
func TestToFP8(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 4))
	for kind, f := range fp8s {
		var inputs []float32
		var values []*big.Rat
		for code := range f.most + 1 {
			values = append(values, f.exact(code))
		}
		for code := range f.most {
			low, high := f.from(code), f.from(code+1)
			middle := (low + high) / 2
			inputs = append(inputs, low, middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, high))
		}
		inputs = append(inputs, f.from(f.most), 1.1*f.from(f.most), math.MaxFloat32,
			math.SmallestNonzeroFloat32)
		for range 500 {
			exponent := random.IntN(1<<f.exponentBits+8) - f.bias - 6
			inputs = append(inputs, float32(math.Ldexp(1+random.Float64(), exponent)))
			if bits := random.Uint32() &^ (1 << 31); bits < math.Float32bits(float32(math.Inf(1))) {
				inputs = append(inputs, math.Float32frombits(bits))
			}
		}
		for _, x := range inputs {
			exact := new(big.Rat).SetFloat64(float64(x))
			if got, want := f.to(x), nearest(values, exact); got != want || f.to(-x) != want|0x80 {
				t.Errorf("%s: %v and its negative have the codes %#x and %#x, want %#x", kind, x, got,
					f.to(-x), want)
			}
		}
		infinity := float32(math.Inf(1))
		if f.to(infinity) != f.most || f.to(-infinity) != f.most|0x80 {
			t.Errorf("%s: infinities have the codes %#x and %#x", kind, f.to(infinity), f.to(-infinity))
		}
	}
}

// TestFP8Pairs compares sums and products of all pairs of finite numbers with the exact results, which
// float64 holds, rounded by exact arithmetic on float64.
func TestFP8Pairs(t *testing.T) {
	for kind, f := range fp8s {
		for op, exactly := range map[Op]func(a, b float64) float64{
			Sum:     func(a, b float64) float64 { return a + b },
			Product: func(a, b float64) float64 { return a * b },
		} {
			var a, b []byte
			for i := range 1 << 16 {
				a, b = append(a, byte(i>>8)), append(b, byte(i))
			}
			got := make([]byte, len(a))
			Combiner(kind, op, Terms{})(got, a, b)
			for i := range got {
				if a[i]&0x7f > f.most || b[i]&0x7f > f.most {
					continue
				}
				exact := exactly(At(kind, a, i), At(kind, b, i))
				want := uint8(0)
				for low, high := uint8(0), f.most; low < high; want = low { // the first at least as large
					if middle := low + (high-low)/2; float64(f.from(middle)) < math.Abs(exact) {
						low = middle + 1
					} else {
						high = middle
					}
				}
				if want > 0 {
					above := float64(f.from(want)) - math.Abs(exact)
					below := math.Abs(exact) - float64(f.from(want-1))
					if below < above || below == above && want%2 == 1 {
						want--
					}
				}
				if math.Signbit(exact) {
					want |= 0x80
				}
				if got[i] != want {
					t.Fatalf("%s: %s of %#x and %#x is %#x, want %#x", kind, op, a[i], b[i], got[i], want)
				}
			}
		}
	}
}

// rounded returns the number nearest to x with so many binary digits that is a multiple of 2^least,
// ties to even.
func rounded(x *big.Rat, digits, least int) *big.Rat {
	if x.Sign() == 0 {
		return x
	}
	size := new(big.Rat).Abs(x)
	exponent := size.Num().BitLen() - size.Denom().BitLen()
	if size.Cmp(power(exponent)) < 0 {
		exponent--
	}
	unit := power(max(exponent-digits+1, least))
	n := new(big.Rat).Quo(size, unit)
	whole, rest := new(big.Int).QuoRem(n.Num(), n.Denom(), new(big.Int))
	if half := rest.Lsh(rest, 1).Cmp(n.Denom()); half > 0 || half == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	n.SetInt(whole).Mul(n, unit)
	if x.Sign() < 0 {
		n.Neg(n)
	}
	return n
}

// finite returns random bits that are a finite number.
func finite(t Type, random *rand.Rand) []byte {
	for {
		b := AppendBits(t, nil, random.Uint64())
		if value := At(t, b, 0); !math.IsNaN(value) && !math.IsInf(value, 0) {
			return b
		}
	}
}

// near returns a random number of about the given size.
func near(t Type, size int, random *rand.Rand) []byte {
	return Append(t, nil, narrowed(t, math.Ldexp(random.Float64()*2-1, size)))
}

// narrowed rounds a number as Append needs it.
func narrowed(t Type, value float64) float64 {
	if t.Size() < 4 {
		return float64(float32(value))
	}
	return value
}

// TestRounding compares sums and products of the floating-point types with the exact results, rounded
// once.
func TestRounding(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 5))
	for _, kind := range Types() {
		if kind.Integer() || kind.Size() == 1 {
			continue // TestFP8Pairs compares all
		}
		least, most := kind.Exponents()
		beyond := power(most + 1)
		for i := range 5_000 {
			a, b := finite(kind, random), finite(kind, random)
			if i%2 == 0 { // sums that cancel, and products at the least numbers
				a, b = near(kind, least/2, random), near(kind, least/2+random.IntN(4), random)
			}
			x, y := new(big.Rat).SetFloat64(At(kind, a, 0)), new(big.Rat).SetFloat64(At(kind, b, 0))
			sum, product := new(big.Rat).Add(x, y), new(big.Rat).Mul(x, y)
			for op, exact := range map[Op]*big.Rat{Sum: sum, Product: product} {
				got := make([]byte, kind.Size())
				Combiner(kind, op, Terms{})(got, a, b)
				want := rounded(exact, kind.Digits(), least)
				value := At(kind, got, 0)
				if new(big.Rat).Abs(want).Cmp(beyond) >= 0 {
					if !math.IsInf(value, exact.Sign()) {
						t.Fatalf("%s: %s of %v and %v is %v, want an infinity", kind, op, x, y, value)
					}
				} else if new(big.Rat).SetFloat64(value).Cmp(want) != 0 {
					t.Fatalf("%s: %s of %x and %x is %v, want %v", kind, op, a, b, value,
						want.FloatString(20))
				}
			}
		}
	}
}

// TestBounds holds the bound of the package comment for sums and products of n numbers, and that it is
// not far above the errors that occur.
func TestBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 6))
	for _, kind := range Types() {
		if kind.Integer() {
			continue
		}
		for _, op := range []Op{Sum, Product} {
			worst := 0.0
			for range 800 {
				n := 2 + random.IntN(7)
				exact, size := new(big.Rat), new(big.Rat)
				var result []byte
				for i := range n {
					own := near(kind, 3, random)
					if op == Product { // no partial product is subnormal or infinite
						own = Append(kind, nil, narrowed(kind, 1+random.Float64()*0.7))
					}
					value := new(big.Rat).SetFloat64(At(kind, own, 0))
					switch {
					case i == 0:
						exact, result = value, own
					case op == Sum:
						exact.Add(exact, value)
					default:
						exact.Mul(exact, value)
					}
					size.Add(size, new(big.Rat).Abs(value))
					if i > 0 {
						Combiner(kind, op, Terms{})(result, result, own)
					}
				}
				if op == Product {
					size.Set(exact)
				}
				one := new(big.Rat).Add(big.NewRat(1, 1), power(-kind.Digits()))
				factor := big.NewRat(1, 1)
				for range n - 1 {
					factor.Mul(factor, one)
				}
				bound := size.Mul(size, factor.Sub(factor, big.NewRat(1, 1)))
				off := new(big.Rat).SetFloat64(At(kind, result, 0))
				if off.Abs(off.Sub(off, exact)); off.Cmp(bound) > 0 {
					t.Fatalf("%s: the %s of %d numbers is off by %s, want at most %s", kind, op, n,
						off.FloatString(20), bound.FloatString(20))
				}
				if bound.Sign() > 0 {
					share, _ := off.Quo(off, bound).Float64()
					worst = max(worst, share)
				}
			}
			if worst < 0.25 {
				t.Errorf("%s: errors of a %s are at most %.2f of the bound", kind, op, worst)
			}
		}
	}
}

// TestFactors holds the factors for eight numbers in the package comment.
func TestFactors(t *testing.T) {
	for kind, want := range map[Type]string{E5M2: "1.28", E4M3: "0.53", BFloat16: "0.028"} {
		factor := math.Expm1(7 * math.Log1p(math.Ldexp(1, -kind.Digits())))
		if got := fmt.Sprintf("%.*f", len(want)-2, factor); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// TestWholeNumbers holds Digits, and the exponents of all types against the numbers next to them.
func TestWholeNumbers(t *testing.T) {
	for _, kind := range Types() {
		digits := kind.Digits()
		if kind.Integer() {
			most := uint64(math.MaxUint64) >> (64 - digits)
			if b := AppendBits(kind, nil, most); integerOf(kind, b).Uint64() != most ||
				integerOf(kind, AppendBits(kind, nil, most+1)).Sign() > 0 {
				t.Errorf("%s has other than %d digits", kind, digits)
			}
			continue
		}
		exact := func(value float64) bool { return At(kind, Append(kind, nil, value), 0) == value }
		whole := math.Ldexp(1, digits)
		least, most := kind.Exponents()
		if !exact(whole-1) || !exact(whole) || exact(whole+1) && kind != Float64 {
			t.Errorf("%s has other than %d digits", kind, digits)
		}
		if !exact(math.Ldexp(1, least)) || least > -1074 && exact(math.Ldexp(1, least-1)) ||
			!exact(math.Ldexp(1, most)) || most < 1023 && exact(math.Ldexp(1, most+1)) &&
			!math.IsInf(float64(float32(math.Ldexp(1, most+1))), 0) {
			t.Errorf("%s has other exponents than %d to %d", kind, least, most)
		}
	}
	if Type("quad").Digits() != 0 || Type("quad").Integer() {
		t.Error("an unknown type has digits")
	}
	if got := AppendBits(Uint64, nil, 1<<63|5); binary.NativeEndian.Uint64(got) != 1<<63|5 {
		t.Errorf("bits % x", got)
	}
}
