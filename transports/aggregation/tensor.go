package aggregation

import (
	"encoding/binary"
	"math"

	"railbed/internal/element"
	"railbed/internal/wire"
)

// tensor is the data to reduce in place. One of its fields has the data: memory has elements of
// kind, floats are sent as fixed point, and ints are sent as integers.
type tensor struct {
	memory []byte
	floats []float32
	ints   []int32
	kind   wire.AggregationType
	op     wire.AggregationOp
	finish func() // run when all results are in memory; may be nil
}

// types and ops map element types and operations to those that switches support.
var (
	types = map[element.Type]wire.AggregationType{
		element.Float32: wire.AggregationFloat32, element.BFloat16: wire.AggregationBFloat16,
		element.Float16: wire.AggregationFloat16, element.Int32: wire.AggregationInt32,
	}
	ops = map[element.Op]wire.AggregationOp{
		element.Sum: wire.AggregationSum, element.Average: wire.AggregationSum,
		element.Max: wire.AggregationMax, element.Min: wire.AggregationMin,
	}
)

// Computes reports whether switches can combine elements of a type with an operation. For an average
// the ranks prepare and finish the elements of a sum: see element.Prepare.
func Computes(t element.Type, op element.Op) bool {
	_, known := ops[op]
	return known && types[t] != 0
}

func (t *tensor) len() int {
	return max(len(t.memory)/t.kind.Size(), len(t.floats), len(t.ints))
}

func (t *tensor) chunks(elements int) int { return (t.len() + elements - 1) / elements }

// chunk returns the range of a chunk. It is empty beyond the last chunk.
func (t *tensor) chunk(number, elements int) (from, to int) {
	from = min(number*elements, t.len())
	return from, min(from+elements, t.len())
}

// scale is the smallest scale at which the sum over fanIn workers fits an integer, provided that no
// worker's elements exceed this worker's.
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
	case t.floats != nil:
		for i, v := range t.floats[from:to] {
			n, _ := wire.ToFixed(v, scale) // it fits: the scale is at least what scale returned
			a.SetFixed(i, n)
		}
	default:
		size := t.kind.Size()
		turn(size, a.Data(), t.memory[size*from:size*to])
	}
}

// read takes elements out of a message.
func (t *tensor) read(a wire.Aggregation, from, to int, scale int8) {
	switch {
	case t.ints != nil:
		for i := range t.ints[from:to] {
			t.ints[from+i] = a.Fixed(i)
		}
	case t.floats != nil:
		for i := range t.floats[from:to] {
			t.floats[from+i] = wire.FromFixed(a.Fixed(i), scale)
		}
	default:
		size := t.kind.Size()
		turn(size, t.memory[size*from:size*to], a.Data()[:size*(to-from)])
	}
}

// turn copies elements of 2 or 4 bytes from the machine's byte order to big endian, or back.
func turn(size int, to, from []byte) {
	if size == 2 {
		for i := 0; i < len(from); i += 2 {
			binary.BigEndian.PutUint16(to[i:], binary.NativeEndian.Uint16(from[i:]))
		}
		return
	}
	for i := 0; i < len(from); i += 4 {
		binary.BigEndian.PutUint32(to[i:], binary.NativeEndian.Uint32(from[i:]))
	}
}
