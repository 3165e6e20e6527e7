package collective

import (
	"unsafe"

	"railbed/internal/element"
)

// Bytes returns the memory of elements, for registering it with an endpoint. The elements are sent
// in the machine's byte order, because all ranks run on one machine.
func Bytes(elements []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), floatSize*len(elements))
}

// Floats returns memory as elements of a Ring.
func Floats(memory []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/floatSize)
}

const floatSize = 4

// sum is the reduction of a Ring.
var sum = element.Combiner(element.Float32, element.Sum, element.Terms{})
