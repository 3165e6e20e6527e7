// Package nicqueue holds the queues by which a program passes Ethernet frames to the emulated NIC of its
// node, and takes frames from it, in shared memory. A NIC with kernel bypass offers the same to its
// programs: rings of descriptors, packet memory and doorbells (compare AF_XDP, and the queue pairs of
// RDMA).
//
// A pair of queues has two sides. The Device is the NIC, in the process of the soft switches. It makes the
// memory (Create). The Program maps it (Map). Each side has one thread for sending and one for receiving.
//
// # Memory
//
// The memory is one sealed memfd: a page of counters, the descriptors of both queues, then a cell for each
// descriptor. Descriptor i always describes cell i, so that no offset has to be checked. A side counts the
// frames that it posted or took in a counter of its own. The device uses a counter or a descriptor of the
// program only after it has checked a private copy. A program that writes nonsense gets ErrBroken from its
// own queues, or loses its own frames.
//
// # Doorbells
//
// Each side has a doorbell: the device an eventfd, the program an end of a pair of sockets. A side that is
// about to wait sets its flag (Device.Rest, Program.Rest) and looks once more for frames. The other side
// rings only while the flag is set. Frames that are posted in a batch cause one system call at most. Whatever
// a program does with its doorbell, ringing never makes the device wait.
//
// A device that rests has a time at which it wakes by itself. A program rings for frames that leave before.
//
// A program that receives a stream need not wake for each frame. It asks to be woken at a number of frames,
// and bounds the wait by a timer of its own. A frame that does not match Request.Unsolicited still wakes it
// at once (compare the solicited events of the IBTA's completion queues, and the interrupt moderation of
// NICs).
//
// # Departure
//
// A descriptor of the program has the time at which the NIC releases the frame, as SO_TXTIME has it. So a
// program wakes once for a batch of paced frames. The queue is in order: a frame waits for those before it.
package nicqueue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Limits of a pair of queues.
const (
	MaxSend    = 1 << 12 // frames of the program's queue for sending
	MaxReceive = 1 << 17 // frames of its queue for receiving
	MaxRoom    = 1 << 16 // bytes of one cell
	MaxMemory  = 1 << 28 // bytes of both queues
	leastFrame = 14      // an Ethernet header
)

// ErrBroken means that the other side broke the format of the shared memory. The pair of queues cannot be
// used any more.
var ErrBroken = errors.New("the other side of the NIC's queues broke their format")

// ErrEnded means that the process of the NIC has ended or has closed the queues.
var ErrEnded = errors.New("the NIC of the node has ended")

// Geometry is the size of a pair of queues.
type Geometry struct {
	// Send and Receive are the numbers of frames that the program's two queues hold, powers of two.
	Send    int `json:"send"`
	Receive int `json:"receive"`
	// Room is the length of the longest frame, in bytes without frame check sequence.
	Room int `json:"room"`
}

// check returns an error for a geometry that no queues can have.
func (g Geometry) check() error {
	for _, q := range []struct{ frames, most int }{{g.Send, MaxSend}, {g.Receive, MaxReceive}} {
		if q.frames < 1 || q.frames > q.most || q.frames&(q.frames-1) != 0 {
			return fmt.Errorf("NIC queue of %d frames, want a power of two of at most %d", q.frames, q.most)
		}
	}
	if g.Room < leastFrame || g.Room > MaxRoom {
		return fmt.Errorf("NIC queue for frames of %d bytes, want %d to %d", g.Room, leastFrame, MaxRoom)
	}
	if size := g.size(); size > MaxMemory {
		return fmt.Errorf("NIC queues of %d and %d frames of %d bytes take %d bytes of memory, want at most "+
			"%d", g.Send, g.Receive, g.Room, size, MaxMemory)
	}
	return nil
}

// Layout of the memory, in bytes. Each counter has a cache line of its own.
const (
	sendPosted   = 0   // Frames that the program ever posted.
	sendTaken    = 64  // Frames that the device ever took.
	deviceRests  = 128 // The time until which the device sleeps and wants its doorbell; 0 while it is awake.
	receivePost  = 192 // Frames that the device ever delivered.
	receiveTaken = 256 // Frames that the program ever took.
	programRests = 320 // The count of delivered frames that rings the program's doorbell; 0 for none.
	programFull  = 384 // 1 while it wants its doorbell when its queue for sending is half empty.
	countersLen  = 4096

	descriptorLen = 16 // Time, length, 4 bytes unused.
	lengthAt      = 8
)

// cellLen is the memory of one frame: an odd number of cache lines. Cells at a power of two would share few
// sets of a cache.
func (g Geometry) cellLen() int { return ((g.Room+63)/64 | 1) * 64 }

// size is the length of the memory.
func (g Geometry) size() int {
	all := g.Send + g.Receive
	return (countersLen + all*(descriptorLen+g.cellLen()) + 4095) &^ 4095
}

// memory is a side's view of the shared memory.
type memory struct {
	bytes    []byte
	geometry Geometry
	cell     int
	cellsAt  int
}

func newMemory(bytes []byte, g Geometry) memory {
	return memory{bytes: bytes, geometry: g, cell: g.cellLen(),
		cellsAt: countersLen + (g.Send+g.Receive)*descriptorLen}
}

func (m *memory) counter(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.bytes[at]))
}

// descriptor and frame return a descriptor and its cell. Those of the queue for receiving follow those of the
// queue for sending.
func (m *memory) descriptor(i int) []byte {
	return m.bytes[countersLen+i*descriptorLen:][:descriptorLen:descriptorLen]
}

func (m *memory) frame(i int) []byte {
	return m.bytes[m.cellsAt+i*m.cell:][:m.geometry.Room:m.geometry.Room]
}

func (m *memory) sending(n uint64) int { return int(n) & (m.geometry.Send - 1) }

func (m *memory) receiving(n uint64) int {
	return m.geometry.Send + int(n)&(m.geometry.Receive-1)
}

func describe(d []byte, at int64, length int) {
	binary.NativeEndian.PutUint64(d, uint64(at))
	binary.NativeEndian.PutUint32(d[lengthAt:], uint32(length))
}

func described(d []byte) (at int64, length int) {
	return int64(binary.NativeEndian.Uint64(d)), int(binary.NativeEndian.Uint32(d[lengthAt:]))
}
