package element

// Prepare makes of a rank's own elements in memory what is added up for an operation of n
// ranks by somebody who knows sums and no averages. Finish makes the result of what all
// ranks' elements became there. Of all but an Average both leave memory as it is.
func Prepare(t Type, op Op, n int, memory []byte) {
	if op != Average || t == Int32 {
		return
	}
	scale := Scale(t, n)
	switch t {
	case Float32:
		for i, d := 0, view[float32](memory); i < len(d); i++ {
			d[i] *= scale
		}
	case BFloat16:
		for i, d := 0, view[uint16](memory); i < len(d); i++ {
			d[i] = ToBFloat16(FromBFloat16(d[i]) * scale)
		}
	case Float16:
		for i, d := 0, view[uint16](memory); i < len(d); i++ {
			d[i] = ToFloat16(FromFloat16(d[i]) * scale)
		}
	}
}

// Finish is the end of what Prepare began.
func Finish(t Type, op Op, n int, memory []byte) {
	if op == Average && t == Int32 {
		divide(memory, n)
	}
}
