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

// Append appends the element of type t that is nearest to value. For types of 8 and 16 bits the value
// must be exact in float32. For integers it must be a whole number in range.
func Append(t Type, to []byte, value float64) []byte {
	switch t {
	case Float64:
		return AppendBits(t, to, math.Float64bits(value))
	case Float32:
		return AppendBits(t, to, uint64(math.Float32bits(float32(value))))
	case BFloat16:
		return AppendBits(t, to, uint64(ToBFloat16(float32(value))))
	case Float16:
		return AppendBits(t, to, uint64(ToFloat16(float32(value))))
	case E4M3:
		return AppendBits(t, to, uint64(ToE4M3(float32(value))))
	case E5M2:
		return AppendBits(t, to, uint64(ToE5M2(float32(value))))
	case Uint64:
		return AppendBits(t, to, uint64(value))
	}
	return AppendBits(t, to, uint64(int64(value)))
}

// AppendBits appends the element of type t whose bits are the lowest of bits.
func AppendBits(t Type, to []byte, bits uint64) []byte {
	switch t.Size() {
	case 1:
		return append(to, byte(bits))
	case 2:
		return binary.NativeEndian.AppendUint16(to, uint16(bits))
	case 4:
		return binary.NativeEndian.AppendUint32(to, uint32(bits))
	case 8:
		return binary.NativeEndian.AppendUint64(to, bits)
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

// At returns element i of memory. Of integers of 64 bits it returns the nearest float64.
func At(t Type, memory []byte, i int) float64 {
	switch t {
	case Int8:
		return float64(view[int8](memory)[i])
	case Uint8:
		return float64(memory[i])
	case Int32:
		return float64(view[int32](memory)[i])
	case Uint32:
		return float64(view[uint32](memory)[i])
	case Int64:
		return float64(view[int64](memory)[i])
	case Uint64:
		return float64(view[uint64](memory)[i])
	case Float32:
		return float64(view[float32](memory)[i])
	case Float64:
		return view[float64](memory)[i]
	case BFloat16:
		return float64(FromBFloat16(view[uint16](memory)[i]))
	case Float16:
		return float64(FromFloat16(view[uint16](memory)[i]))
	case E4M3:
		return float64(FromE4M3(memory[i]))
	case E5M2:
		return float64(FromE5M2(memory[i]))
	}
	panic("no element type " + string(t))
}

// Aligned reports whether memory has a size and an alignment for elements of type t.
func Aligned(t Type, memory []byte) bool {
	return len(memory)%t.Size() == 0 &&
		uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%uintptr(t.Size()) == 0
}
