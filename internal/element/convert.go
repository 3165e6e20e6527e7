package element

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/x448/float16"
)

// FromBFloat16 converts a bfloat16 to float32, exactly.
func FromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBFloat16 converts to the nearest bfloat16, ties to even.
func ToBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40 // quiet
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// FromFloat16 converts a float16 to float32, exactly.
func FromFloat16(h uint16) float32 { return float16.Frombits(h).Float32() }

// ToFloat16 converts to the nearest float16, ties to even.
func ToFloat16(f float32) uint16 { return float16.Fromfloat32(f).Bits() }

// Append appends the element of type t that is nearest to value. For types of 16 bits the value
// must be exact in float32. For Int32 it must be a whole number in range.
func Append(t Type, to []byte, value float64) []byte {
	switch t {
	case Float32:
		return binary.NativeEndian.AppendUint32(to, math.Float32bits(float32(value)))
	case BFloat16:
		return binary.NativeEndian.AppendUint16(to, ToBFloat16(float32(value)))
	case Float16:
		return binary.NativeEndian.AppendUint16(to, ToFloat16(float32(value)))
	case Int32:
		return binary.NativeEndian.AppendUint32(to, uint32(int32(value)))
	}
	panic("no element type " + string(t))
}

// view returns memory as a slice of elements.
func view[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(*new(T))))
}

// At returns element i of memory.
func At(t Type, memory []byte, i int) float64 {
	switch t {
	case Float32:
		return float64(view[float32](memory)[i])
	case BFloat16:
		return float64(FromBFloat16(view[uint16](memory)[i]))
	case Float16:
		return float64(FromFloat16(view[uint16](memory)[i]))
	case Int32:
		return float64(view[int32](memory)[i])
	}
	panic("no element type " + string(t))
}

// Aligned reports whether memory has a size and an alignment for elements of type t.
func Aligned(t Type, memory []byte) bool {
	return len(memory)%t.Size() == 0 &&
		uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%uintptr(t.Size()) == 0
}
