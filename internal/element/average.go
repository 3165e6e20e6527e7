package element

// Prepare converts a rank's own elements in memory to the addends of an Average over n ranks, for a
// network that can compute sums but not averages. Finish converts the sum to the result. For all
// operations other than Average both leave memory unchanged.
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

// Finish converts the sum of all ranks' prepared elements to the result of the operation: see
// Prepare.
func Finish(t Type, op Op, n int, memory []byte) {
	if op == Average && t == Int32 {
		divide(memory, n)
	}
}
