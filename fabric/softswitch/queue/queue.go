// Package queue is the egress side of a software switch's port and of an
// emulated NIC: priority queues over a shared buffer, their scheduler, what
// they mark, trim and drop, and the pauses that they ask for and obey.
//
// # Memory
//
// A switch has one buffer, divided as plan.SoftSwitch says. What is reserved for
// lossless priorities is theirs by ingress port. The rest is shared: a lossy queue
// takes packets while it holds at most alpha times what is free of it (Choudhury
// and Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches,
// IEEE/ACM Transactions on Networking 6(2), 1998); with n queues at their
// thresholds each holds alpha/(1+n*alpha) of it, and a frame at most. Lengths are
// those of packet.Packet's Data, to the byte.
//
// # Scheduling
//
// Strict queues are served first, in their order, and the others by deficit
// round robin (Shreedhar and Varghese, Efficient Fair Queuing using Deficit
// Round Robin, SIGCOMM 1995) with quanta of at least one frame, so that a choice
// takes constant time.
//
// # Purity
//
// The package has no clock and no thread of its own, and every call is given the
// time. Every draw is a pure function of the seed, the flow and the packet's
// ordinal in it. Nothing is allocated for a packet. Nothing here is safe for
// concurrent use.
package queue

import (
	"math/bits"

	"railbed/internal/clock"
)

// Priorities is the number of queues of a port.
const Priorities = 8

// Mask is a set of priorities, a bit each.
type Mask uint8

// MaskOf is the set of some priorities.
func MaskOf(priorities ...int) (m Mask) {
	for _, q := range priorities {
		m |= 1 << (q & (Priorities - 1))
	}
	return m
}

// Has reports whether a priority is in the set.
func (m Mask) Has(priority uint8) bool { return m>>priority&1 != 0 }

// Len is how many priorities are in the set.
func (m Mask) Len() int { return bits.OnesCount8(uint8(m)) }

// first is the lowest priority of a set that is not empty.
func (m Mask) first() uint8 { return uint8(bits.TrailingZeros8(uint8(m))) }

// Reason says why a packet was dropped or trimmed.
type Reason uint8

// Reasons. The names are those of counters and of the capture's comments.
const (
	Accepted   Reason = iota
	Tail              // the queue's dynamic threshold, or the link's own limit
	Buffer            // the shared buffer is full
	Headroom          // a lossless class overran its headroom
	NICOverrun        // the emulated NIC's queue is full
	Express           // trimmed, and the express queue has no room for the header
	reasons
)

// Outcome is what became of an offered packet.
type Outcome struct {
	// Reason is Accepted, or why the packet was dropped (Dropped) or cut
	// (Packet.Trimmed).
	Reason  Reason
	Dropped bool // the packet is the caller's again, as it was
	Marked  bool // congestion experienced was set
	Queue   uint8
	// Depth is the length in bytes, before the packet, of the queue that the
	// packet came for.
	Depth int64
}

// Signals is what a shared buffer tells the sender at the far end of an
// ingress port. Calls are made during Enqueue, Dequeue and Report.
type Signals interface {
	// Pause asks for a stop (on) or an end of the stop of one priority: PFC. It
	// is called once for each change; renewing pauses is the caller's.
	Pause(ingress int, priority uint8, on bool)
	// Stage tells the sender to send one priority at rate / 2^stage: GFC. It is
	// called when the stage changes; telling it again, for a message that is lost,
	// is the caller's.
	Stage(ingress int, priority uint8, stage uint8)
	// ReportAt asks for a call of Memory.Report at a time: time-based GFC has to
	// tell rates then. A call at an earlier time, or one more, does nothing.
	ReportAt(at clock.Time)
}

// RateSignals are Signals that can also tell a rate in fine steps, as
// time-based GFC does. Without Rate it tells the stage next below.
type RateSignals interface {
	Signals
	// Rate tells the sender to send one priority at share/FullRate of its line's
	// rate; share is never 0. It is called every period while it is below FullRate,
	// and once when it is that again.
	Rate(ingress int, priority uint8, share uint16)
}

// FullRate is the share of the whole line.
const FullRate = 65535
