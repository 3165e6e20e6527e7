// Package schedule describes algorithms of collective operations as data, and
// proves before they run that they do what their kind asks for.
//
// A Schedule divides the whole buffer of an operation into chunks of equal shares
// and says for each rank what it does with them: threads of steps, as in MSCCL
// (Cowan et al., "MSCCLang: Microsoft Collective Communication Language", 2023).
// The steps of a thread are done in order; those of different threads in any
// order but for what After asks. The k-th send from one rank to another on a
// channel is what the k-th receive there is for. Sends never wait for a receiver,
// so that whoever runs a schedule must have a place for what comes early.
//
// A chunk has one number everywhere: chunk 3 of an input, of an output and of
// scratch memory have the same place in the whole buffer, and no step moves data
// from one chunk to another. So a buffer may be of any length, chunks may differ
// by an element, and a schedule may be run for each of many slices of the chunks
// at once, which is how they are pipelined. Where steps do move data to chunks of
// other numbers, as an all-to-all and MSCCL's scratch memory need it, the schedule
// says that its chunks are Equal, and the length of the buffer is a multiple of
// their number. MSCCL's steps that receive and send at once (rcs, rrs, rrcs) are
// two steps here: a runner that sends from where data landed loses nothing by that.
//
// The package is pure; its functions are safe for concurrent use.
package schedule

import "fmt"

// Kind is what an operation has to give.
type Kind string

// Kinds. The whole buffer has Chunks chunks; where ranks have shares of it, rank r
// of n has those from r*Chunks/n on.
const (
	AllReduce     Kind = "all-reduce"     // whole buffers in; their sum out, at all ranks
	AllGather     Kind = "all-gather"     // each rank's share in; the whole buffer out
	ReduceScatter Kind = "reduce-scatter" // whole buffers in; each rank's share of their sum out
	Broadcast     Kind = "broadcast"      // the root's whole buffer in; out at all ranks
	Reduce        Kind = "reduce"         // whole buffers in; their sum out at the root
	AllToAll      Kind = "all-to-all"     // whole buffers in; of each rank's, this rank's share out
	Gather        Kind = "gather"         // each rank's share in; the whole buffer out at the root
	Scatter       Kind = "scatter"        // the root's whole buffer in; each rank's share out
	Barrier       Kind = "barrier"        // no data; nobody ends before all have begun
)

// extent is the part of the whole buffer that a rank's input or output has.
type extent uint8

// Extents. Of ofRoot the root has the whole buffer, and other ranks have nothing.
const (
	ofNone extent = iota
	ofWhole
	ofShare
	ofRoot
)

// kinds say what each kind's inputs and outputs are, and whether it combines inputs.
var kinds = map[Kind]struct {
	in, out  extent
	combines bool
}{
	AllReduce: {ofWhole, ofWhole, true}, AllGather: {ofShare, ofWhole, false},
	ReduceScatter: {ofWhole, ofShare, true},
	Broadcast:     {ofRoot, ofWhole, false},
	Reduce:        {ofWhole, ofRoot, true},
	AllToAll:      {ofWhole, ofWhole, false},
	Gather:        {ofShare, ofRoot, false},
	Scatter:       {ofRoot, ofShare, false},
	Barrier:       {},
}

// Buffer is one of a rank's.
type Buffer uint8

// Buffers. An input is never written, but in place by results. Scratch holds nothing at
// first.
const (
	Input Buffer = iota
	Output
	Scratch
	buffers
)

// Op is what a step does.
type Op uint8

// Operations.
const (
	Send       Op = iota // Source to Peer
	Receive              // from Peer into Target
	Combine              // into Target the sum of Source and what comes from Peer
	Copy                 // Source into Target
	Accumulate           // into Target the sum of Source and Target
	operations
)

// Step is one operation on Count chunks from Chunk on. In a Barrier Count is 0: then
// messages are empty.
type Step struct {
	Op             Op
	Peer           int
	Chunk, Count   int
	Source, Target Buffer
	// Move is by how much the numbers of the chunks in Target are greater than those in
	// Source: 0 where chunks are not Equal.
	Move int
	// After are further steps of this rank that must be done before.
	After []At
}

// At is a step of a rank.
type At struct{ Thread, Step int }

// Thread is steps in order. Messages between two ranks on a channel are sent by one
// thread and received by one.
type Thread struct {
	Channel int
	Steps   []Step
}

// Schedule is an algorithm for a number of ranks.
type Schedule struct {
	Kind      Kind
	Algorithm string
	Root      int // of Rooted kinds
	Chunks    int
	// Equal says that all chunks have one length. Then data may move between chunks of
	// different numbers, and Scratch is how many there are in scratch memory. Otherwise
	// that has as many as the whole buffer.
	Equal   bool
	Scratch int
	// OutOfPlace is that it does what its kind asks for only out of place.
	OutOfPlace bool
	Ranks      [][]Thread // by rank
	// Name is what errors call a step; nil is by its rank, thread and number.
	Name func(rank int, at At) string `json:"-"`
}

// Len is how many chunks the buffers of ranks have at most.
func (s *Schedule) Len(b Buffer) int {
	if b == Scratch && s.Equal {
		return s.Scratch
	}
	return s.Chunks
}

// Has says that a rank's buffer has a place for a chunk.
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

// extent is that of an input or an output.
func (k Kind) extent(b Buffer) extent {
	if b == Input {
		return kinds[k].in
	}
	return kinds[k].out
}

// SharesOf says that each rank's input or output is its share of the whole buffer.
func (k Kind) SharesOf(b Buffer) bool { return k.extent(b) == ofShare }

// Shares says that ranks have shares of the whole buffer, as input or as output, or as
// parts of what they give to each other.
func (k Kind) Shares() bool { return k.SharesOf(Input) || k.SharesOf(Output) || k == AllToAll }

// Rooted says that one rank, the root, has what others do not have.
func (k Kind) Rooted() bool { return kinds[k].in == ofRoot || kinds[k].out == ofRoot }

// InPlace is the buffer of which the other one is a part in place, or which it is.
func (k Kind) InPlace() Buffer {
	if kinds[k].out == ofWhole || kinds[k].in == ofShare {
		return Output
	}
	return Input
}

// String is what a rank's own buffer is called.
func (b Buffer) String() string {
	return [...]string{"its input", "its output", "its scratch memory"}[b]
}

// Combines says that outputs are made of several ranks' inputs.
func (k Kind) Combines() bool { return kinds[k].combines }

// String is the operation in words.
func (o Op) String() string {
	return [...]string{"send", "receive", "combine", "copy", "accumulate"}[o]
}

// Local says that a step has no message.
func (o Op) Local() bool { return o == Copy || o == Accumulate }

// receives says that a step takes a message.
func (o Op) receives() bool { return o == Receive || o == Combine }

// writes says that a step changes its rank's memory.
func (o Op) writes() bool { return o != Send }

// reads says that a step reads its rank's memory.
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
