package element

type (
	integer interface {
		int8 | uint8 | int32 | uint32 | int64 | uint64
	}
	float interface{ float32 | float64 }
)

// combiner returns the loop for an operation, or nil if the type or operation does not exist.
func combiner(t Type, op Op) Combine {
	switch t {
	case Int8:
		return integers[int8](op)
	case Uint8:
		return integers[uint8](op)
	case Int32:
		return integers[int32](op)
	case Uint32:
		return integers[uint32](op)
	case Int64:
		return integers[int64](op)
	case Uint64:
		return integers[uint64](op)
	case Float32:
		return floats[float32](op)
	case Float64:
		return floats[float64](op)
	case BFloat16:
		if op == Sum {
			return addBFloats
		}
		return bfloat16s.combiner(op)
	case Float16:
		if op == Sum {
			return addHalves
		}
		return halves.combiner(op)
	case E4M3:
		return e4m3s.combiner(op)
	case E5M2:
		return e5m2s.combiner(op)
	}
	return nil
}

func integers[T integer](op Op) Combine {
	switch op {
	case Max:
		return each(func(a, b T) T { return max(a, b) })
	case Min:
		return each(func(a, b T) T { return min(a, b) })
	}
	return arithmetic[T](op)
}

func floats[T float](op Op) Combine {
	switch op {
	case Max:
		return each(Larger[T])
	case Min:
		return each(Smaller[T])
	}
	return arithmetic[T](op)
}

func arithmetic[T integer | float](op Op) Combine {
	switch op {
	case Sum:
		return add[T]
	case Product:
		return multiply[T]
	}
	return nil
}

func add[T integer | float](dst, a, b []byte) {
	d, x, y := view[T](dst), view[T](a), view[T](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func multiply[T integer | float](dst, a, b []byte) {
	d, x, y := view[T](dst), view[T](a), view[T](b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] * y[i]
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

// weighted adds elements of a floating-point type, each times its factor.
func weighted(t Type, x, y float64) Combine {
	switch t {
	case Float32:
		return weighFloats(float32(x), float32(y))
	case Float64:
		return weighFloats(x, y)
	case E4M3:
		return e4m3s.weighted(float32(x), float32(y))
	case E5M2:
		return e5m2s.weighted(float32(x), float32(y))
	}
	return func(dst, a, b []byte) {
		if t == BFloat16 {
			weighBFloats(dst, a, b, float32(x), float32(y))
		} else {
			weighHalves(dst, a, b, float32(x), float32(y))
		}
	}
}

func weighFloats[T float](v, w T) Combine {
	return func(dst, a, b []byte) {
		d, x, y := view[T](dst), view[T](a), view[T](b)
		x, y = x[:len(d)], y[:len(d)]
		for i := range d {
			// The conversions prevent the compiler from fusing two roundings into one.
			d[i] = T(x[i]*v) + T(y[i]*w)
		}
	}
}

// divide divides integers by n, towards 0.
func divide(t Type, memory []byte, n int) {
	switch t {
	case Int8:
		quotients[int8](memory, n)
	case Uint8:
		quotients[uint8](memory, n)
	case Int32:
		quotients[int32](memory, n)
	case Uint32:
		quotients[uint32](memory, n)
	case Int64:
		quotients[int64](memory, n)
	case Uint64:
		quotients[uint64](memory, n)
	}
}

func quotients[T integer](memory []byte, n int) {
	d, by := view[T](memory), T(n)
	if by < 0 || int(by) != n { // the type is shorter than 64 bits
		for i := range d {
			d[i] = T(int64(d[i]) / int64(n))
		}
		return
	}
	for i := range d {
		d[i] /= by
	}
}

// Larger returns the maximum, but prefers a number to a NaN.
func Larger[T float](a, b T) T {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return max(a, b)
}

// Smaller returns the minimum, but prefers a number to a NaN.
func Smaller[T float](a, b T) T {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}
