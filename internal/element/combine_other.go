//go:build !amd64

package element

func combiner(t Type, op Op) Combine { return plain(t, op) }

func divide(memory []byte, n int) { plainDivide(memory, n) }

func weighted(t Type, x, y float32) Combine { return plainWeighted(t, x, y) }
