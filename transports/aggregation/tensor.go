package aggregation

import (
	"math"

	"railbed/transports/wire"
)

// tensor is what is summed up, in place: floats, which travel as such or as fixed
// point, or integers.
type tensor struct {
	floats []float32
	ints   []int32
	fixed  bool
	modulo bool // integers modulo 2^32
}

func (t *tensor) kind() wire.AggregationType {
	switch {
	case t.modulo:
		return wire.AggregationModulo
	case t.floats != nil && !t.fixed:
		return wire.AggregationFloat32
	}
	return wire.AggregationFixed
}

func (t *tensor) len() int { return max(len(t.floats), len(t.ints)) }

func (t *tensor) chunks(elements int) int { return (t.len() + elements - 1) / elements }

// chunk is the range of a chunk, which is empty beyond the last.
func (t *tensor) chunk(number, elements int) (from, to int) {
	from = min(number*elements, t.len())
	return from, min(from+elements, t.len())
}

// scale is the least at which no sum over the workers leaves the range of an
// integer, if all are as great as this worker's.
func (t *tensor) scale(from, to, fanIn int) int8 {
	limit := float32(0)
	for _, v := range t.floats[from:to] {
		limit = max(limit, float32(math.Abs(float64(v))))
	}
	return wire.ScaleFor(limit, fanIn)
}

// write puts elements into a message.
func (t *tensor) write(a wire.Aggregation, from, to int, scale int8) {
	switch {
	case t.ints != nil:
		for i, v := range t.ints[from:to] {
			a.SetFixed(i, v)
		}
	case t.fixed:
		for i, v := range t.floats[from:to] {
			n, _ := wire.ToFixed(v, scale) // it fits: the scale is at least what scale said
			a.SetFixed(i, n)
		}
	default:
		for i, v := range t.floats[from:to] {
			a.SetFloat(i, v)
		}
	}
}

// read takes elements out of a message.
func (t *tensor) read(a wire.Aggregation, from, to int, scale int8) {
	switch {
	case t.ints != nil:
		for i := range t.ints[from:to] {
			t.ints[from+i] = a.Fixed(i)
		}
	case t.fixed:
		for i := range t.floats[from:to] {
			t.floats[from+i] = wire.FromFixed(a.Fixed(i), scale)
		}
	default:
		for i := range t.floats[from:to] {
			t.floats[from+i] = a.Float(i)
		}
	}
}
