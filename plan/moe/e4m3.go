package moe

import "math"

// maxE4M3 is the largest value of FP8 in the OCP's "8-bit floating point specification" (2023),
// E4M3. The format has four bits of exponent with a bias of 7, three bits of mantissa, no
// infinities, and one NaN of each sign.
const maxE4M3 = 448

// e4m3 holds the values of all codes.
var e4m3 = func() (values [256]float32) {
	for code := range values {
		exponent, mantissa := code>>3&15, float64(code&7)
		value := math.Ldexp(1+mantissa/8, exponent-7)
		switch {
		case code&127 == 127:
			value = math.NaN()
		case exponent == 0:
			value = math.Ldexp(mantissa/8, -6)
		}
		if code >= 128 {
			value = -value
		}
		values[code] = float32(value)
	}
	return values
}()

// toE4M3 returns the code of the nearest value, ties to even. Larger values become the largest
// value, as in a GPU's conversion.
func toE4M3(f float32) byte {
	bits := math.Float32bits(f)
	sign := byte(bits >> 24 & 128)
	bits &= 1<<31 - 1
	switch size := math.Float32frombits(bits); {
	case f != f:
		return sign | 127
	case size >= maxE4M3:
		return sign | 126
	case size < 1.0/64: // multiples of 2^-9
		return sign | byte(math.RoundToEven(float64(size)*512))
	}
	bits += 1<<19 - 1 + bits>>20&1
	return sign | byte(bits>>20-(127-7)<<3)
}

// leastMaximum is the least value that is used as the maximum of a block, as in DeepEP.
const leastMaximum = 1e-4

// quantise converts values to codes. For each Block of values it returns the scale by which the
// codes must be multiplied.
func quantise(values []float32, codes []byte, scales []float32) {
	for b := range scales {
		block := values[b*Block:][:Block]
		most := float32(leastMaximum)
		for _, v := range block {
			most = max(most, v, -v)
		}
		scales[b] = most / maxE4M3
		by := maxE4M3 / most
		into := codes[b*Block:][:Block]
		for i, v := range block {
			into[i] = toE4M3(v * by)
		}
	}
}

// dequantise reverses quantise, except for rounding.
func dequantise(codes []byte, scales []float32, values []float32) {
	for b, scale := range scales {
		from, into := codes[b*Block:][:Block], values[b*Block:][:Block]
		for i, code := range from {
			into[i] = e4m3[code] * scale
		}
	}
}
