package element

// combiner returns the loop for an operation, or nil if the type or operation does not exist.
func combiner(t Type, op Op) Combine {
	switch t {
	case Float32:
		return map[Op]Combine{Sum: add[float32], Max: each(Larger), Min: each(Smaller)}[op]
	case BFloat16:
		return map[Op]Combine{Sum: addBFloats, Max: bfloats(Larger), Min: bfloats(Smaller)}[op]
	case Float16:
		return map[Op]Combine{Sum: addHalves, Max: halves(Larger), Min: halves(Smaller)}[op]
	case Int32:
		return map[Op]Combine{
			Sum: add[int32],
			Max: each(func(a, b int32) int32 { return max(a, b) }),
			Min: each(func(a, b int32) int32 { return min(a, b) }),
		}[op]
	}
	return nil
}

// weighted adds elements of a floating-point type, each times its factor.
func weighted(t Type, x, y float32) Combine {
	return func(dst, a, b []byte) {
		switch t {
		case Float32:
			weighFloats(dst, a, b, x, y)
		case BFloat16:
			weighBFloats(dst, a, b, x, y)
		case Float16:
			weighHalves(dst, a, b, x, y)
		}
	}
}

func weighFloats(dst, a, b []byte, v, w float32) {
	d, x, y := view[float32](dst), view[float32](a), view[float32](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		// The conversions prevent the compiler from fusing two roundings into one.
		d[i] = float32(x[i]*v) + float32(y[i]*w)
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

// divide divides each Int32 by n, towards 0.
func divide(memory []byte, n int) {
	for i, d := 0, view[int32](memory); i < len(d); i++ {
		d[i] /= int32(n)
	}
}

func add[T float32 | int32](dst, a, b []byte) {
	d, x, y := view[T](dst), view[T](a), view[T](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func each[T any](f func(a, b T) T) Combine {
	return func(dst, a, b []byte) {
		d, x, y := view[T](dst), view[T](a), view[T](b)
		x, y = x[:len(d)], y[:len(d)]
		for i := range d {
			d[i] = f(x[i], y[i])
		}
	}
}

func bfloats(f func(a, b float32) float32) Combine {
	return each(func(a, b uint16) uint16 { return ToBFloat16(f(FromBFloat16(a), FromBFloat16(b))) })
}

func halves(f func(a, b float32) float32) Combine {
	return each(func(a, b uint16) uint16 { return ToFloat16(f(FromFloat16(a), FromFloat16(b))) })
}

// Larger returns the maximum, but prefers a number to a NaN.
func Larger(a, b float32) float32 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return max(a, b)
}

// Smaller returns the minimum, but prefers a number to a NaN.
func Smaller(a, b float32) float32 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}
