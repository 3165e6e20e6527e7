package element

import "math"

// narrow is a floating-point type of 8 or 16 bits, whose operations are computed as float32.
type narrow[T uint8 | uint16] struct {
	from func(T) float32
	to   func(float32) T
}

var (
	bfloat16s = narrow[uint16]{FromBFloat16, ToBFloat16}
	halves    = narrow[uint16]{FromFloat16, ToFloat16}
	e4m3s     = narrow[uint8]{FromE4M3, ToE4M3}
	e5m2s     = narrow[uint8]{FromE5M2, ToE5M2}
)

func (n narrow[T]) combiner(op Op) Combine {
	switch op {
	case Sum:
		return each(func(a, b T) T { return n.to(n.from(a) + n.from(b)) })
	case Product:
		return each(func(a, b T) T { return n.to(n.from(a) * n.from(b)) })
	case Max:
		return n.chosen(Larger[float32])
	case Min:
		return n.chosen(Smaller[float32])
	}
	return nil
}

// chosen returns the loop for a function that returns one of its arguments. It converts nothing,
// because a conversion saturates infinities of 8 bits.
func (n narrow[T]) chosen(f func(a, b float32) float32) Combine {
	return each(func(a, b T) T {
		if x := n.from(a); math.Float32bits(f(x, n.from(b))) == math.Float32bits(x) {
			return a
		}
		return b
	})
}

func (n narrow[T]) weighted(v, w float32) Combine {
	return each(func(a, b T) T {
		return n.to(n.from(n.to(n.from(a)*v)) + n.from(n.to(n.from(b)*w)))
	})
}

// scale multiplies each element by a factor.
func (n narrow[T]) scale(memory []byte, by float32) {
	for i, d := 0, view[T](memory); i < len(d); i++ {
		d[i] = n.to(n.from(d[i]) * by)
	}
}

// Sums of types of 16 bits have loops of their own, which take a third of the time of a call for each
// element.

func addBFloats(dst, a, b []byte) {
	d, x, y := view[uint16](dst), view[uint16](a), view[uint16](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = ToBFloat16(FromBFloat16(x[i]) + FromBFloat16(y[i]))
	}
}

// weighBFloats leaves out factors of 1: in a ring the sum of the ranks before has this factor.
func weighBFloats(dst, a, b []byte, v, w float32) {
	d, x, y := view[uint16](dst), view[uint16](a), view[uint16](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		if v != 1 {
			p = ToBFloat16(FromBFloat16(p) * v)
		}
		if w != 1 {
			q = ToBFloat16(FromBFloat16(q) * w)
		}
		d[i] = ToBFloat16(FromBFloat16(p) + FromBFloat16(q))
	}
}

func addHalves(dst, a, b []byte) {
	d, x, y := view[uint16](dst), view[uint16](a), view[uint16](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = ToFloat16(FromFloat16(x[i]) + FromFloat16(y[i]))
	}
}

func weighHalves(dst, a, b []byte, v, w float32) {
	d, x, y := view[uint16](dst), view[uint16](a), view[uint16](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		p, q := x[i], y[i]
		if v != 1 {
			p = ToFloat16(FromFloat16(p) * v)
		}
		if w != 1 {
			q = ToFloat16(FromFloat16(q) * w)
		}
		d[i] = ToFloat16(FromFloat16(p) + FromFloat16(q))
	}
}
