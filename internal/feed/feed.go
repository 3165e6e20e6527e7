// Package feed passes records of frames from a software switch to a recorder in another process. It
// is a ring in shared memory with one writer and one reader.
//
// The writer never waits. It drops a record for which the ring has no room and counts it for the
// tap. The count is in the next record of that tap and in Lost.
package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Event is the event of a frame that a record describes.
type Event uint8

// Events.
const (
	Receive Event = iota // It was received from the line.
	Send                 // Its first bit was sent.
	Enqueue              // It was put into a queue.
	Drop                 // It was dropped.
	Lose                 // It was dropped after its sending had been recorded at the same tap.
	Refuse               // It arrived at a node that had no room for it.
	Dequeue              // It was taken out of a queue, and its sending was recorded before.
	Enter                // A node's NIC handed it to the emulated NIC.
	Leave                // The emulated NIC hands it to the node's NIC, unless a Refuse follows.
	Harm                 // A fault changes it.
)

// Verdict specifies the port's action on the frame besides queueing it, or the request of a control
// frame.
type Verdict uint8

// Verdicts. The capture's comments use the same names.
const (
	Plain  Verdict = iota // nothing
	Mark                  // congestion experienced was set
	Trim                  // the payload was cut away
	Pause                 // it requests a pause
	Resume                // it ends pauses
	Slow                  // it requests a lower rate

	// What faults do.

	Delay
	Duplicate
	Corrupt
	Truncate
	Rewrite
	Mirror
	Misroute
	RequestPause // its receiver sends a pause
)

var verdicts = [...]string{"", "mark", "trim", "pause", "resume", "slow", "delay", "duplicate", "corrupt",
	"truncate", "rewrite", "mirror", "misroute", "request-pause"}

// Verdicts returns the names of all verdicts except Plain.
func Verdicts() []string { return slices.Clone(verdicts[1:]) }

// String returns the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return "unknown"
}

// Record describes a frame at a tap.
type Record struct {
	// Time is the time at which the frame was at the tap, in nanoseconds of CLOCK_REALTIME.
	Time int64
	// Late is Time less the time that the model computed, in nanoseconds.
	Late int64
	// Depth is the number of bytes in the queue ahead of the frame, or -1 where the frame has not waited yet.
	Depth int64
	// Lost is the number of records of the tap that were lost immediately before this one.
	Lost uint64
	// Serial is the frame's number, the same at every tap and for all copies.
	Serial uint64
	// Length is the frame's length. Data may hold only the beginning of the frame.
	Length  int
	Tap     uint16
	Event   Event
	Verdict Verdict
	Reason  uint8 // of drops and verdicts, by the switch's numbers
	Queue   uint8
	Fault   uint8 // the number of the fault that acted, for FaultName; 0 without one
	Data    []byte
}

// PassSnap is the largest number of bytes of a frame in Enter and Leave records. These records
// identify a frame and need not show its content: the bytes hold the headers and the numbers by
// which transports distinguish packets.
const PassSnap = 96

// Layout of the shared memory: a page of counters, then the ring.
const (
	headAt     = 0   // bytes ever written
	tailAt     = 64  // bytes ever read; on a cache line of its own
	magicAt    = 128 // identifies a feed, so that other memory is not mapped by mistake
	lostAt     = 256 // records lost, by tap
	maxTaps    = 4096
	namesAt    = lostAt + maxTaps*8 // of faults, by number
	nameSize   = 32                 // a byte for the length, and the name
	ringAt     = namesAt + 256*nameSize
	magic      = 0x52424633 // "RBF3": the layout has serials and names of faults
	headerSize = 56
)

// header offsets
const (
	sizeAt    = 0 // of the whole record, a multiple of 8; with skipBit, of unused space
	tapAt     = 4
	eventAt   = 6
	reasonAt  = 7
	timeAt    = 8
	lateAt    = 16
	depthAt   = 24
	lengthAt  = 32
	dataAt    = 36 // bytes of data
	queueAt   = 40
	verdictAt = 41
	faultAt   = 42
	droppedAt = 44
	serialAt  = 48
	skipBit   = 1 << 31
)

// ring is the shared memory.
type ring struct {
	memory []byte
	data   []byte
}

func newRing(memory []byte, fresh bool) (*ring, error) {
	if len(memory) < ringAt+4096 {
		return nil, fmt.Errorf("map feed: %d bytes, want at least %d", len(memory), ringAt+4096)
	}
	r := &ring{memory: memory, data: memory[ringAt : ringAt+(len(memory)-ringAt)&^7]}
	if fresh {
		binary.NativeEndian.PutUint32(memory[magicAt:], magic)
	}
	if binary.NativeEndian.Uint32(memory[magicAt:]) != magic {
		return nil, errors.New("map feed: the memory holds no feed")
	}
	return r, nil
}

func (r *ring) counter(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.memory[at])) }

// Writer is the switch's end of a feed. Only one thread may use it.
type Writer struct {
	*ring
	head uint64
	lost []uint32 // since the tap's last record
}

// NameFault tells readers the name of the fault with a number, before any record has the number. The name is
// cut at 31 bytes.
func (w *Writer) NameFault(number uint8, name string) {
	to := w.memory[namesAt+int(number)*nameSize:][:nameSize]
	to[0] = uint8(copy(to[1:], name))
}

// Lose counts records of a tap that cannot be written.
func (w *Writer) Lose(tap uint16, count uint64) {
	if int(tap) >= maxTaps {
		return
	}
	w.lost[tap] += uint32(count)
	total := w.counter(lostAt + 8*int(tap))
	total.Store(total.Load() + count)
}

// Write writes a record, with at most snap bytes of its Data. It reports whether there was room.
func (w *Writer) Write(r *Record) bool {
	if int(r.Tap) >= maxTaps {
		return false
	}
	size := (headerSize + len(r.Data) + 7) &^ 7
	at := int(w.head % uint64(len(w.data)))
	skip := 0
	if at+size > len(w.data) {
		skip = len(w.data) - at // a record does not wrap around
	}
	tail := w.counter(tailAt).Load()
	if w.head-tail+uint64(skip+size) > uint64(len(w.data)) {
		w.Lose(r.Tap, 1)
		return false
	}
	if skip > 0 {
		binary.NativeEndian.PutUint32(w.data[at:], uint32(skip)|skipBit)
		at = 0
	}
	b := w.data[at : at+size]
	binary.NativeEndian.PutUint32(b[sizeAt:], uint32(size))
	binary.NativeEndian.PutUint16(b[tapAt:], r.Tap)
	b[eventAt], b[reasonAt], b[queueAt], b[verdictAt] = uint8(r.Event), r.Reason, r.Queue, uint8(r.Verdict)
	b[faultAt] = r.Fault
	binary.NativeEndian.PutUint64(b[timeAt:], uint64(r.Time))
	binary.NativeEndian.PutUint64(b[lateAt:], uint64(r.Late))
	binary.NativeEndian.PutUint64(b[depthAt:], uint64(r.Depth))
	binary.NativeEndian.PutUint32(b[lengthAt:], uint32(r.Length))
	binary.NativeEndian.PutUint32(b[dataAt:], uint32(len(r.Data)))
	binary.NativeEndian.PutUint32(b[droppedAt:], w.lost[r.Tap])
	binary.NativeEndian.PutUint64(b[serialAt:], r.Serial)
	copy(b[headerSize:], r.Data)
	w.lost[r.Tap] = 0
	w.head += uint64(skip + size)
	w.counter(headAt).Store(w.head)
	return true
}

// Reader is the recorder's end of a feed. Only one thread may use it.
type Reader struct {
	*ring
	tail   uint64
	record Record // passed to Read's fn, so that Read does not allocate
}

// Read calls fn for waiting records, at most limit, and returns their number. A record and its Data
// are valid during the call. If the writer violates the format, Read returns an error, and nothing
// more can be read.
func (r *Reader) Read(limit int, fn func(*Record)) (int, error) {
	head := r.counter(headAt).Load()
	if head-r.tail > uint64(len(r.data)) {
		return 0, fmt.Errorf("read feed: the writer is %d bytes ahead, want at most the ring's %d bytes",
			head-r.tail, len(r.data))
	}
	count := 0
	for r.tail != head && count < limit {
		at := int(r.tail % uint64(len(r.data)))
		b := r.data[at:]
		size := int(binary.NativeEndian.Uint32(b[sizeAt:]))
		if size&skipBit != 0 {
			if size &^= skipBit; size != len(b) || uint64(size) > head-r.tail {
				return count, fmt.Errorf("read feed: skip of %d bytes, want the %d to the ring's end", size,
					len(b))
			}
			r.tail += uint64(size)
			continue
		}
		if size < headerSize || size > len(b) || uint64(size) > head-r.tail || size%8 != 0 {
			return count, fmt.Errorf("read feed: record of %d bytes, want a multiple of 8 from %d to %d",
				size, headerSize, len(b))
		}
		length := int(binary.NativeEndian.Uint32(b[dataAt:]))
		if length > size-headerSize {
			return count, fmt.Errorf("read feed: %d bytes of data in a record of %d bytes", length, size)
		}
		r.record = Record{
			Time:    int64(binary.NativeEndian.Uint64(b[timeAt:])),
			Late:    int64(binary.NativeEndian.Uint64(b[lateAt:])),
			Depth:   int64(binary.NativeEndian.Uint64(b[depthAt:])),
			Length:  int(binary.NativeEndian.Uint32(b[lengthAt:])),
			Lost:    uint64(binary.NativeEndian.Uint32(b[droppedAt:])),
			Serial:  binary.NativeEndian.Uint64(b[serialAt:]),
			Tap:     binary.NativeEndian.Uint16(b[tapAt:]),
			Event:   Event(b[eventAt]),
			Verdict: Verdict(b[verdictAt]),
			Reason:  b[reasonAt],
			Queue:   b[queueAt],
			Fault:   b[faultAt],
			Data:    b[headerSize : headerSize+length : headerSize+length],
		}
		fn(&r.record)
		r.tail += uint64(size)
		count++
	}
	r.counter(tailAt).Store(r.tail)
	return count, nil
}

// FaultName returns the name of the fault with a number, "" without one.
func (r *Reader) FaultName(number uint8) string {
	name := r.memory[namesAt+int(number)*nameSize:][:nameSize]
	return string(name[1 : 1+min(int(name[0]), nameSize-1)])
}

// Lost returns the number of records of a tap that were dropped because the ring had no room.
func (r *Reader) Lost(tap uint16) uint64 {
	if int(tap) >= maxTaps {
		return 0
	}
	return r.counter(lostAt + 8*int(tap)).Load()
}
