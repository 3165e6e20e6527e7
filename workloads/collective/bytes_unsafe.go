package collective

import (
	"unsafe"

	"railbed/internal/element"
)

// Bytes is the memory of elements, for registering it with an endpoint. The
// elements travel in the machine's byte order: all ranks run on one machine.
func Bytes(elements []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), floatSize*len(elements))
}

// Floats is memory as elements of a Ring.
func Floats(memory []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/floatSize)
}

const floatSize = 4

// sum is what a Ring does.
var sum = element.Combiner(element.Float32, element.Sum, element.Terms{})
