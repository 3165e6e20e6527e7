// Package collective implements the collective operations that Railbed's workers run, and the data
// by which their results are checked element by element. It uses the network only through
// transports.Endpoint.
package collective

import (
	"railbed/internal/element"
	"railbed/plan/schedule"
)

// Mode selects the memory from which an operation reads its input.
type Mode int

// Modes, in the terms of nccl-tests.
const (
	OutOfPlace Mode = iota // from Input to Output
	InPlace                // from Output to Output; Input is scratch
)

// String returns the mode as nccl-tests prints it above its columns.
func (m Mode) String() string {
	if m == InPlace {
		return "in-place"
	}
	return "out-of-place"
}

// Traffic counts payload bytes.
type Traffic struct {
	Sent     uint64 `json:"sent"`     // in messages to other ranks, also those that then failed
	Received uint64 `json:"received"` // in messages from other ranks
	// Missing is the number of bytes left out of those messages, as Ring.Droppable allows.
	Missing uint64 `json:"missing,omitempty"`
}

// Add adds other traffic.
func (t *Traffic) Add(other Traffic) {
	t.Sent += other.Sent
	t.Received += other.Received
	t.Missing += other.Missing
}

// Algorithm lists the actions of the ranks in a collective, for buffers of given lengths. A Runner carries
// them out at one rank. An Algorithm never changes, and is safe for concurrent use.
type Algorithm interface {
	// Partners returns the ranks that exchange messages with a rank.
	Partners(rank int) []int
	// Lengths returns the lengths of a rank's memory in bytes.
	Lengths(rank int) Memory[int]
	// buffer returns the memory of a rank's input or output in a mode, and the index of its first
	// element in the whole buffer.
	buffer(rank int, mode Mode, b schedule.Buffer) (p place, from int)
	// actions passes the actions of a rank to add, in order. It returns the number of steps of each
	// thread in a StepLog.
	actions(rank int, mode Mode, add func(action)) (threads []int)
	// wrong counts the elements of a rank's output that differ from the result of the ranks' patterns,
	// less the losses of all ranks. short counts the elements that lack a part of the result. The
	// output begins with element from of the whole buffer.
	wrong(p *Pattern, rank int, output []byte, from, iteration int, lost []Loss) (wrong, short uint64)
	traits() traits
}

// traits are the properties of an algorithm that do not depend on the rank.
type traits struct {
	kind      schedule.Kind
	algorithm string
	ranks     int
	data      element.Type
	op        element.Op
	modes     []Mode
	// eager is set if messages are sent without permission: see eagerBytes.
	eager bool
	// lastSignaled is set if of all messages that a rank sends in an operation, only the last needs a
	// completion. Each rank then sends to one rank.
	lastSignaled bool
}

// place is memory of a rank: bytes of one of its buffers. Scratch stands for its work memory.
type place struct {
	buffer   schedule.Buffer
	from, to int
}

func (p place) len() int { return p.to - p.from }

// times returns the place in bytes of elements of the given size.
func (p place) times(size int) place { return place{p.buffer, p.from * size, p.to * size} }

// Operations of actions, besides those of package schedule. A permit lets Peer send. An await does nothing:
// other actions wait for it, and so for all actions for which it waits.
const (
	permit schedule.Op = 64 + iota
	await
)

// action is a step of a rank for one slice.
type action struct {
	op             schedule.Op
	peer           int
	source, target place
	combine        []combination // of a Combine or an Accumulate
	message        bool          // it has a message; false for a slice without elements
	// landed is the place where the message lands: at this rank or, of a Send, at the peer. In every second
	// operation of eager messages it lands turn bytes behind it.
	landed place
	turn   int
	// imm is the number of the message at its receiver. The actions that receive a rank's messages are
	// in the order of these numbers, without gaps.
	imm       uint32
	droppable int // bytes of the message that may be missing
	first     int // the target's first element in the whole buffer, if bytes may be missing
	copied    int // the offset in the operation's place in ahead
	// after has the actions that must be done before, and unsent the actions whose messages must be
	// complete before.
	after, unsent []int
	// taken is the step of a StepLog that has a part done when the action is. arrived is the step that has
	// a part done when the message has arrived. Both are noStep for none.
	taken, arrived int
}

const noStep = -1

// takes reports whether an operation receives a message.
func takes(op schedule.Op) bool { return op == schedule.Receive || op == schedule.Combine }

// combination returns how the bytes [from, to) of an action are combined.
type combination struct {
	from, to int
	combine  element.Combine
}
