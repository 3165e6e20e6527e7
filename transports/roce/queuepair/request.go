package queuepair

import (
	"fmt"

	"railbed/internal/infiniband"
)

// Op is the operation of a request.
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

// String returns the operation's name in the InfiniBand specification.
func (o Op) String() string {
	if int(o) < len(opNames) && o > 0 {
		return opNames[o]
	}
	return "unknown"
}

// answers reports whether the peer answers with data, so that an acknowledgement alone does not
// complete the request.
func (o Op) answers() bool { return o == Read || o.atomic() }

func (o Op) atomic() bool { return o == CompareSwap || o == FetchAdd }

// Rights is a set of rights of a peer to memory.
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

// find returns the memory at an address, or nil if it is not all in the region.
func (r *Region) find(address uint64, length int) []byte {
	at := address - r.Base // an address before Base wraps to a large offset
	if at > uint64(len(r.Memory)) || uint64(length) > uint64(len(r.Memory))-at {
		return nil
	}
	return r.Memory[at:][:length:length]
}

// Request is work for the peer.
type Request struct {
	// ID is copied into the completion.
	ID uint64
	Op Op
	// Local is the memory to send, or that a READ fills, in pieces.
	Local [][]byte
	// Address and RKey identify the peer's memory. For atomic operations it is 8 bytes at a
	// multiple of 8.
	Address uint64
	RKey    uint32
	Imm     uint32
	// Compare is the value that a CompareSwap expects. Operand is its new value, or the value that
	// a FetchAdd adds.
	Compare, Operand uint64
	// Solicited requests an event at the receiver.
	Solicited bool
}

// Completion is the end of a request or of a receive.
type Completion struct {
	ID  uint64
	Op  Op
	Err error
	// Bytes is the number of bytes received or sent.
	Bytes int
	// Imm is the immediate of the message, if HasImm.
	Imm    uint32
	HasImm bool
	// Written is set if a WRITE_IMM used the receive: Bytes are in the region.
	Written bool
	// Original is the value before an atomic operation.
	Original uint64
}

// work is a request that is posted and not complete.
type work struct {
	Request
	first    infiniband.PSN
	packets  int // number of PSNs; for a READ, of the response
	size     int
	original uint64
}

func (w *work) end() infiniband.PSN { return w.first.Add(w.packets) }

// packetsOf is the number of packets of a message.
func packetsOf(size, mtu int) int { return max((size+mtu-1)/mtu, 1) }

// Post posts a request. It fails when the queue pair is broken, when too many requests are posted,
// and when the request is invalid.
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
		return fmt.Errorf("%v at %#x with %d bytes of local memory: want an address that is a "+
			"multiple of 8, and 0 bytes", r.Op, r.Address, size)
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

// gather copies bytes from the pieces, from offset at on, into memory.
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

// scatter copies memory into the pieces, from offset at on.
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
