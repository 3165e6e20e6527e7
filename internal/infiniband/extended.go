package infiniband

import "encoding/binary"

// Lengths of the extended transport headers (9.3), in bytes.
const (
	RETHLen         = 16
	AtomicETHLen    = 28
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	DETHLen         = 8
)

// RETH is an RDMA extended transport header: the remote memory of a READ or WRITE (9.3.3).
type RETH []byte

// RETHFields are the fields of a RETH.
type RETHFields struct {
	VA     uint64 // virtual address at the responder
	RKey   uint32 // of the region
	Length uint32 // bytes of the whole message
}

// Valid reports whether the bytes hold a RETH.
func (h RETH) Valid() bool { return len(h) >= RETHLen }

// Fields reads all fields.
func (h RETH) Fields() RETHFields {
	return RETHFields{VA: binary.BigEndian.Uint64(h), RKey: binary.BigEndian.Uint32(h[8:]),
		Length: binary.BigEndian.Uint32(h[12:])}
}

// Encode writes the header.
func (h RETH) Encode(f *RETHFields) {
	_ = h[RETHLen-1]
	binary.BigEndian.PutUint64(h, f.VA)
	binary.BigEndian.PutUint32(h[8:], f.RKey)
	binary.BigEndian.PutUint32(h[12:], f.Length)
}

// AtomicETH is an atomic extended transport header (9.3.4).
type AtomicETH []byte

// AtomicETHFields are the fields of an AtomicETH.
type AtomicETHFields struct {
	VA   uint64 // virtual address at the responder, of 8 bytes
	RKey uint32
	// SwapAdd is the value that CompareSwap writes or FetchAdd adds.
	SwapAdd uint64
	// Compare is the value with which CompareSwap compares the memory; FetchAdd does not use it.
	Compare uint64
}

// Valid reports whether the bytes hold an AtomicETH.
func (h AtomicETH) Valid() bool { return len(h) >= AtomicETHLen }

// Fields reads all fields.
func (h AtomicETH) Fields() AtomicETHFields {
	return AtomicETHFields{
		VA: binary.BigEndian.Uint64(h), RKey: binary.BigEndian.Uint32(h[8:]),
		SwapAdd: binary.BigEndian.Uint64(h[12:]), Compare: binary.BigEndian.Uint64(h[20:]),
	}
}

// Encode writes the header.
func (h AtomicETH) Encode(f *AtomicETHFields) {
	_ = h[AtomicETHLen-1]
	binary.BigEndian.PutUint64(h, f.VA)
	binary.BigEndian.PutUint32(h[8:], f.RKey)
	binary.BigEndian.PutUint64(h[12:], f.SwapAdd)
	binary.BigEndian.PutUint64(h[20:], f.Compare)
}

// AtomicAckETH is an atomic acknowledge extended transport header (9.5.3): the content of the
// memory before the operation.
type AtomicAckETH []byte

// Valid reports whether the bytes hold an AtomicAckETH.
func (h AtomicAckETH) Valid() bool { return len(h) >= AtomicAckETHLen }

// Original is the content of the memory before the operation.
func (h AtomicAckETH) Original() uint64 { return binary.BigEndian.Uint64(h) }

// Encode writes the header.
func (h AtomicAckETH) Encode(original uint64) { binary.BigEndian.PutUint64(h, original) }

// ImmDt is an immediate (9.3.6).
type ImmDt []byte

// Valid reports whether the bytes hold an immediate.
func (h ImmDt) Valid() bool { return len(h) >= ImmDtLen }

// Imm is the immediate, most significant byte first.
func (h ImmDt) Imm() uint32 { return binary.BigEndian.Uint32(h) }

// Encode writes the immediate.
func (h ImmDt) Encode(imm uint32) { binary.BigEndian.PutUint32(h, imm) }

// IETH is an invalidate extended transport header (9.3.7).
type IETH []byte

// Valid reports whether the bytes hold an IETH.
func (h IETH) Valid() bool { return len(h) >= IETHLen }

// RKey is the R_Key of the region that the responder must invalidate.
func (h IETH) RKey() uint32 { return binary.BigEndian.Uint32(h) }

// Encode writes the header.
func (h IETH) Encode(rkey uint32) { binary.BigEndian.PutUint32(h, rkey) }

// DETH is a datagram extended transport header (9.3.2).
type DETH []byte

// DETHFields are the fields of a DETH.
type DETHFields struct {
	QKey  uint32
	SrcQP QPN
}

// Valid reports whether the bytes hold a DETH.
func (h DETH) Valid() bool { return len(h) >= DETHLen }

// Fields reads all fields.
func (h DETH) Fields() DETHFields {
	return DETHFields{QKey: binary.BigEndian.Uint32(h), SrcQP: QPN(uint24(h[5:]))}
}

// Encode writes the header. The reserved byte is 0.
func (h DETH) Encode(f *DETHFields) {
	_ = h[DETHLen-1]
	binary.BigEndian.PutUint32(h, f.QKey)
	h[4] = 0
	putUint24(h[5:], uint32(f.SrcQP))
}
