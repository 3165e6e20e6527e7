package element

// Prepare converts a rank's own elements in memory to the addends of an Average over n ranks, for a
// network that can compute sums but not averages. Finish converts the sum to the result. For all
// operations other than Average both leave memory unchanged.
func Prepare(t Type, op Op, n int, memory []byte) {
	if op != Average || t.Integer() {
		return
	}
	switch by := Scale(t, n); t {
	case Float32:
		scale(memory, float32(by))
	case Float64:
		scale(memory, by)
	case BFloat16:
		bfloat16s.scale(memory, float32(by))
	case Float16:
		halves.scale(memory, float32(by))
	case E4M3:
		e4m3s.scale(memory, float32(by))
	case E5M2:
		e5m2s.scale(memory, float32(by))
	}
}

func scale[T float](memory []byte, by T) {
	for i, d := 0, view[T](memory); i < len(d); i++ {
		d[i] *= by
	}
}

// Finish converts the sum of all ranks' prepared elements to the result of the operation: see
// Prepare.
func Finish(t Type, op Op, n int, memory []byte) {
	if op == Average && t.Integer() {
		divide(t, memory, n)
	}
}
