package element

// plain returns the loop in Go for an operation. Vector loops replace it where they exist; it then
// processes the remainder after their last whole block.
func plain(t Type, op Op) Combine {
	switch t {
	case Float32:
		return map[Op]Combine{Sum: add[float32], Max: each(Larger), Min: each(Smaller)}[op]
	case BFloat16:
		return map[Op]Combine{Sum: bfloats(plus), Max: bfloats(Larger), Min: bfloats(Smaller)}[op]
	case Float16:
		return map[Op]Combine{Sum: halves(plus), Max: halves(Larger), Min: halves(Smaller)}[op]
	case Int32:
		return map[Op]Combine{
			Sum: add[int32],
			Max: each(func(a, b int32) int32 { return max(a, b) }),
			Min: each(func(a, b int32) int32 { return min(a, b) }),
		}[op]
	}
	return nil
}

// plainWeighted adds elements of a floating-point type, each times its factor.
func plainWeighted(t Type, x, y float32) Combine {
	scale := func(value, factor float32) float32 { return Scaled(t, value, factor) }
	sum := func(a, b float32) float32 { return scale(a, x) + scale(b, y) }
	switch t {
	case BFloat16:
		return bfloats(sum)
	case Float16:
		return halves(sum)
	}
	// The conversions to float32 prevent the compiler from fusing two roundings into one.
	return each(func(a, b float32) float32 { return float32(a*x) + float32(b*y) })
}

// plainDivide divides each Int32 by n, towards 0.
func plainDivide(memory []byte, n int) {
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

func plus(a, b float32) float32 { return a + b }

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
