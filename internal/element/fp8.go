package element

import "math"

// The largest finite codes of the 8-bit types, without sign: 448 and 57,344.
const (
	mostE4M3 = 0x7e
	mostE5M2 = 0x7b
)

var (
	valuesE4M3 = valuesFP8(3, 7, mostE4M3, math.NaN())
	valuesE5M2 = valuesFP8(2, 15, mostE5M2, math.Inf(1))
)

// FromE4M3 converts an 8-bit number with four bits of exponent to float32, exactly. The format is E4M3
// of OCP's "8-bit Floating Point Specification (OFP8)", revision 1.0, 2023. It has no infinities, and
// one NaN of each sign.
func FromE4M3(b uint8) float32 { return valuesE4M3[b] }

// FromE5M2 converts an 8-bit number with five bits of exponent to float32, exactly. The format is E5M2
// of OFP8, which has infinities and NaNs as IEEE 754 does.
func FromE5M2(b uint8) float32 { return valuesE5M2[b] }

// ToE4M3 converts to the nearest E4M3, ties to even. Numbers beyond the largest number and infinities
// become the largest number, and a NaN remains a NaN of the same sign: OFP8, section 5.2.1, with
// saturation, as GPUs convert.
func ToE4M3(f float32) uint8 { return toFP8(f, 3, 7, mostE4M3) }

// ToE5M2 converts to the nearest E5M2, with the rules of ToE4M3. The result is never an infinity.
func ToE5M2(f float32) uint8 { return toFP8(f, 2, 15, mostE5M2) }

// valuesFP8 returns the values of all codes. beyond is the value of the code after most. Codes after
// that are NaNs.
func valuesFP8(mantissa, bias int, most uint8, beyond float64) (values [256]float32) {
	for code := range values {
		size := code & 0x7f
		exponent, value := size>>mantissa, float64(size&(1<<mantissa-1))
		if exponent > 0 {
			value += float64(int(1) << mantissa)
		}
		value = math.Ldexp(value, max(exponent, 1)-bias-mantissa)
		switch {
		case size == int(most)+1:
			value = beyond
		case size > int(most):
			value = math.NaN()
		}
		if code != size {
			value = -value
		}
		values[code] = float32(value)
	}
	return values
}

func toFP8(f float32, mantissa, bias int, most uint8) uint8 {
	bits := math.Float32bits(f)
	sign, size := uint8(bits>>24)&0x80, bits&^(1<<31)
	if f != f {
		return sign | 0x7f
	}
	if least := uint32(128-bias) << 23; size < least { // a multiple of the smallest number
		by := math.Ldexp(1, bias+mantissa-1)
		return sign | uint8(math.RoundToEven(float64(math.Float32frombits(size))*by))
	}
	drop := 23 - mantissa
	code := (size+1<<(drop-1)-1+size>>drop&1)>>drop - uint32(127-bias)<<mantissa
	return sign | uint8(min(code, uint32(most)))
}
