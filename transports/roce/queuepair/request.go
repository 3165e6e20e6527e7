package queuepair

import (
	"fmt"

	"railbed/internal/infiniband"
)

// Op is what a request does.
type Op uint8

// Operations. Receive appears in completions only.
const (
	Send Op = 1 + iota
	SendImm
	Write
	WriteImm
	Read
	CompareSwap
	FetchAdd
	Receive
)

var opNames = [...]string{Send: "SEND", SendImm: "SEND_IMM", Write: "WRITE", WriteImm: "WRITE_IMM",
	Read: "READ", CompareSwap: "COMPARE_SWAP", FetchAdd: "FETCH_ADD", Receive: "RECEIVE"}

// String is the operation in the words of the InfiniBand specification.
func (o Op) String() string {
	if int(o) < len(opNames) && o > 0 {
		return opNames[o]
	}
	return "unknown"
}

// answers says that the peer answers with data, so that an acknowledgement alone
// does not complete the request.
func (o Op) answers() bool { return o == Read || o.atomic() }

func (o Op) atomic() bool { return o == CompareSwap || o == FetchAdd }

// Rights is what a peer may do with memory.
type Rights uint8

// Rights.
const (
	RemoteWrite Rights = 1 << iota
	RemoteRead
	RemoteAtomic
)

// Region is registered memory. Its first byte has the address Base.
type Region struct {
	Base   uint64
	Memory []byte
	Rights Rights
}

// find is the memory at an address, nil where it is not all in the region.
func (r *Region) find(address uint64, length int) []byte {
	at := address - r.Base // of one before it that is far behind it
	if at > uint64(len(r.Memory)) || uint64(length) > uint64(len(r.Memory))-at {
		return nil
	}
	return r.Memory[at:][:length:length]
}

// Request is work for the peer.
type Request struct {
	// ID comes back in the completion.
	ID uint64
	Op Op
	// Local is the memory that is sent, or that a READ fills, in pieces.
	Local [][]byte
	// Address and RKey name the peer's memory; of atomic operations it is 8 bytes at
	// a multiple of 8.
	Address uint64
	RKey    uint32
	Imm     uint32
	// Compare is what a CompareSwap expects, and Operand what it puts there then, or
	// what a FetchAdd adds.
	Compare, Operand uint64
	// Solicited asks for an event at the receiver.
	Solicited bool
}

// Completion is the end of a request or of a receive.
type Completion struct {
	ID  uint64
	Op  Op
	Err error
	// Bytes came or went.
	Bytes int
	// Imm came with a message, if HasImm.
	Imm    uint32
	HasImm bool
	// Written says of a receive that a WRITE_IMM used it: Bytes are in the region.
	Written bool
	// Original is what an atomic operation found.
	Original uint64
}

// work is a request that is posted and not complete.
type work struct {
	Request
	first    infiniband.PSN
	packets  int // PSNs: of a READ those of the response
	size     int
	original uint64
}

func (w *work) end() infiniband.PSN { return w.first.Add(w.packets) }

// packetsOf is how many packets a message takes.
func packetsOf(size, mtu int) int { return max((size+mtu-1)/mtu, 1) }

// Post takes a request. It fails when the queue pair is broken, when too much is
// posted, and when the request cannot be one.
func (q *QP) Post(r Request) error {
	if q.err != nil {
		return q.err
	}
	if r.Op == 0 || r.Op >= Receive {
		return fmt.Errorf("operation %v cannot be posted", r.Op)
	}
	if len(q.queue) == maxMessages {
		return fmt.Errorf("%d requests are posted: poll for completions first", maxMessages)
	}
	size := 0
	for _, piece := range r.Local {
		size += len(piece)
	}
	w := work{Request: r, first: q.end, size: size, packets: 1}
	switch {
	case r.Op.atomic() && (size != 0 || r.Address%8 != 0):
		return fmt.Errorf("%v at %#x with %d bytes: want a multiple of 8, and no local memory", r.Op,
			r.Address, size)
	case size > infiniband.MaxMessage:
		return fmt.Errorf("%v of %d bytes, limit %d", r.Op, size, infiniband.MaxMessage)
	case !r.Op.atomic():
		w.packets = packetsOf(size, q.config.MTU)
	}
	if q.end.Add(w.packets).From(q.una) < 0 {
		return fmt.Errorf("more than %d packets are posted: poll for completions first", 1<<23)
	}
	q.queue = append(q.queue, w)
	q.end = w.end()
	return nil
}

// gather copies the bytes from at on into memory.
func gather(into []byte, from [][]byte, at int) {
	for _, piece := range from {
		if at >= len(piece) {
			at -= len(piece)
			continue
		}
		n := copy(into, piece[at:])
		if into, at = into[n:], 0; len(into) == 0 {
			return
		}
	}
}

// scatter is the reverse.
func scatter(into [][]byte, at int, from []byte) {
	for _, piece := range into {
		if at >= len(piece) {
			at -= len(piece)
			continue
		}
		n := copy(piece[at:], from)
		if from, at = from[n:], 0; len(from) == 0 {
			return
		}
	}
}
