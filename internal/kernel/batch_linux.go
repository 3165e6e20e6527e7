package kernel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Batch is a list of configuration requests for one namespace, encoded as netlink messages; one
// system call sends many of them. It keeps with each request the equivalent ip or tc line, for
// errors and for the trace.
//
// The requests are encoded here because the netlink module sends a single request per system call
// and waits for each answer; a router of a large fabric has thousands.
//
// A Batch is not safe for concurrent use.
type Batch struct {
	node  string
	trace func(line string)

	buf    []byte
	starts []int
	lines  []func() string
}

// NewBatch returns an empty batch. Node names the namespace in errors and trace lines. Trace is
// called with the line of each request when it is sent; nil costs nothing.
func NewBatch(node string, trace func(line string)) *Batch {
	return &Batch{node: node, trace: trace}
}

// Len is the number of requests in the batch.
func (b *Batch) Len() int { return len(b.starts) }

// Reset empties the batch for another node and keeps its memory.
func (b *Batch) Reset(node string) {
	b.node = node
	b.buf, b.starts, b.lines = b.buf[:0], b.starts[:0], b.lines[:0]
}

// begin starts a message; the caller appends its body and attributes and then
// calls end.
func (b *Batch) begin(kind, flags uint16, line func() string) {
	b.starts = append(b.starts, len(b.buf))
	b.lines = append(b.lines, line)
	b.u32(0) // length, set by end
	b.u16(kind)
	b.u16(unix.NLM_F_REQUEST | flags)
	b.u32(0) // sequence number, set when sent
	b.u32(0) // port id: the kernel fills it in
}

func (b *Batch) end() {
	b.pad()
	start := b.starts[len(b.starts)-1]
	binary.NativeEndian.PutUint32(b.buf[start:], uint32(len(b.buf)-start))
}

func (b *Batch) u8(v ...uint8) { b.buf = append(b.buf, v...) }
func (b *Batch) u16(v uint16)  { b.buf = binary.NativeEndian.AppendUint16(b.buf, v) }
func (b *Batch) u32(v uint32)  { b.buf = binary.NativeEndian.AppendUint32(b.buf, v) }
func (b *Batch) u64(v uint64)  { b.buf = binary.NativeEndian.AppendUint64(b.buf, v) }

// pad aligns to 4 bytes, as NLMSG_ALIGN and RTA_ALIGN require.
func (b *Batch) pad() {
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
}

// nest opens an attribute that contains everything appended until unnest.
func (b *Batch) nest(kind uint16) (start int) {
	start = len(b.buf)
	b.u16(0)
	b.u16(kind)
	return start
}

func (b *Batch) unnest(start int) {
	binary.NativeEndian.PutUint16(b.buf[start:], uint16(len(b.buf)-start))
	b.pad()
}

func (b *Batch) attrBytes(kind uint16, value []byte) {
	start := b.nest(kind)
	b.buf = append(b.buf, value...)
	b.unnest(start)
}

// attrString appends a NUL-terminated string.
func (b *Batch) attrString(kind uint16, value string) {
	start := b.nest(kind)
	b.buf = append(append(b.buf, value...), 0)
	b.unnest(start)
}

func (b *Batch) attrU8(kind uint16, value uint8) {
	start := b.nest(kind)
	b.u8(value)
	b.unnest(start)
}

func (b *Batch) attrU32(kind uint16, value uint32) {
	start := b.nest(kind)
	b.u32(value)
	b.unnest(start)
}

func (b *Batch) attrU64(kind uint16, value uint64) {
	start := b.nest(kind)
	b.u64(value)
	b.unnest(start)
}

func (b *Batch) attrAddr(kind uint16, addr netip.Addr) {
	b.attrBytes(kind, addr.AsSlice())
}

// family is the address family of addr.
func family(addr netip.Addr) uint8 {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
