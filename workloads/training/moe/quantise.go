package moe

import (
	"railbed/internal/element"

	"railbed/plan/spec"
)

// maxE4M3 is the largest E4M3.
const maxE4M3 = 448

// leastMaximum is the least value that is used as the maximum of a block, as in DeepEP.
const leastMaximum = 1e-4

// quantise converts values to codes. For each spec.TokenBlock of values it returns the scale by which the
// codes must be multiplied.
func quantise(values []float32, codes []byte, scales []float32) {
	for b := range scales {
		block := values[b*spec.TokenBlock:][:spec.TokenBlock]
		most := float32(leastMaximum)
		for _, v := range block {
			most = max(most, v, -v)
		}
		scales[b] = most / maxE4M3
		by := maxE4M3 / most
		into := codes[b*spec.TokenBlock:][:spec.TokenBlock]
		for i, v := range block {
			into[i] = element.ToE4M3(v * by)
		}
	}
}

// dequantise reverses quantise, except for rounding.
func dequantise(codes []byte, scales []float32, values []float32) {
	for b, scale := range scales {
		from := codes[b*spec.TokenBlock:][:spec.TokenBlock]
		into := values[b*spec.TokenBlock:][:spec.TokenBlock]
		for i, code := range from {
			into[i] = element.FromE4M3(code) * scale
		}
	}
}
