// Package schedule describes algorithms of collective operations as data. Before a run it proves
// that they do what their kind requires.
//
// A Schedule divides the whole buffer of an operation into chunks of equal shares. For each rank it
// gives the operations on these chunks as threads of steps, as in MSCCL (Cowan et al., "MSCCLang:
// Microsoft Collective Communication Language", 2023). The steps of a thread run in order. Steps of
// different threads run in any order, except as After requires. The k-th send from one rank to
// another on a channel belongs to the k-th receive there. Sends never wait for a receiver, so a
// runner must have memory for early messages.
//
// A chunk has one number everywhere. Chunk 3 of an input, of an output and of scratch memory have
// the same position in the whole buffer, and no step moves data from one chunk to another. A buffer
// may therefore have any length, and chunks may differ by an element. A schedule may also be run
// for each of many slices of the chunks at once, which gives a pipeline.
//
// Some schedules move data to chunks of other numbers: an all-to-all needs it, and so does MSCCL's
// scratch memory. Such a schedule declares its chunks Equal, and the length of the buffer is a
// multiple of their number. MSCCL's steps that receive and send at once (rcs, rrs, rrcs) are two
// steps here. A runner that sends from the memory in which data landed is as fast.
//
// The package is pure. Its functions are safe for concurrent use.
package schedule

import "fmt"

// Buffer is one of a rank's buffers.
type Buffer uint8

// Buffers. An input is never written, except by results in place. Scratch holds no data at first.
const (
	Input Buffer = iota
	Output
	Scratch
	buffers
)

// Op is the operation of a step.
type Op uint8

// Operations.
const (
	Send       Op = iota // Source to Peer
	Receive              // from Peer into Target
	Combine              // into Target the sum of Source and the message from Peer
	Copy                 // Source into Target
	Accumulate           // into Target the sum of Source and Target
	operations
)

// Step is one operation on Count chunks from Chunk on. In a Barrier Count is 0 and messages are
// empty.
type Step struct {
	Op             Op
	Peer           int
	Chunk, Count   int
	Source, Target Buffer
	// Move is added to the number of a chunk in Source to get its number in Target. It is 0 unless
	// chunks are Equal.
	Move int
	// After lists further steps of this rank that must complete before.
	After []At
}

// At identifies a step of a rank.
type At struct{ Thread, Step int }

// Thread is a list of steps in order. One thread sends all messages to a peer on a channel, and one
// thread receives them.
type Thread struct {
	Channel int
	Steps   []Step
}

// Schedule is an algorithm for a number of ranks.
type Schedule struct {
	Kind      Kind
	Algorithm string
	Root      int // of kinds for which Rooted is true
	Chunks    int
	// Equal reports whether all chunks have one length. Data may then move between chunks of
	// different numbers, and Scratch is the number of chunks in scratch memory. Otherwise scratch
	// memory has as many chunks as the whole buffer.
	Equal   bool
	Scratch int
	// OutOfPlace reports whether the schedule is correct only out of place.
	OutOfPlace bool
	Ranks      [][]Thread // by rank
	// Name returns the name of a step for errors. If it is nil, errors name the rank, thread and
	// number.
	Name func(rank int, at At) string `json:"-"`
}

// Len returns the largest number of chunks of a rank's buffer.
func (s *Schedule) Len(b Buffer) int {
	if b == Scratch && s.Equal {
		return s.Scratch
	}
	return s.Chunks
}

// Has reports whether a rank's buffer has memory for a chunk.
func (s *Schedule) Has(rank int, b Buffer, chunk int) bool {
	switch {
	case chunk < 0 || chunk >= s.Len(b):
		return false
	case b == Scratch:
		return s.Kind != Barrier
	}
	switch s.Kind.extent(b) {
	case ofWhole:
		return true
	case ofShare:
		each := s.Chunks / len(s.Ranks)
		return chunk >= rank*each && chunk < (rank+1)*each
	case ofRoot:
		return rank == s.Root
	}
	return false
}

// String returns the name of a rank's buffer.
func (b Buffer) String() string {
	return [...]string{"its input", "its output", "its scratch memory"}[b]
}

// String returns the name of the operation.
func (o Op) String() string {
	return [...]string{"send", "receive", "combine", "copy", "accumulate"}[o]
}

// Local reports whether a step has no message.
func (o Op) Local() bool { return o == Copy || o == Accumulate }

// receives reports whether a step receives a message.
func (o Op) receives() bool { return o == Receive || o == Combine }

// writes reports whether a step changes its rank's memory.
func (o Op) writes() bool { return o != Send }

// reads reports whether a step reads its rank's memory.
func (o Op) reads() bool { return o != Receive }

func (s *Step) String() string {
	chunks := fmt.Sprintf("chunk %d", s.Chunk)
	if s.Count != 1 {
		chunks = fmt.Sprintf("%d chunks from %d on", s.Count, s.Chunk)
	}
	if s.Move != 0 {
		chunks += fmt.Sprintf(" into %d", s.Chunk+s.Move)
	}
	switch s.Op {
	case Send:
		return fmt.Sprintf("send %s to rank %d", chunks, s.Peer)
	case Copy, Accumulate:
		return fmt.Sprintf("%v %s", s.Op, chunks)
	}
	return fmt.Sprintf("%v %s from rank %d", s.Op, chunks, s.Peer)
}
