package collective

import "unsafe"

// Bytes is the memory of elements, for registering it with an endpoint. The
// elements travel in the machine's byte order: all ranks run on one machine.
func Bytes(elements []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), ElementSize*len(elements))
}
