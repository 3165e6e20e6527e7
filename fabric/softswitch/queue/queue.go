// Package queue implements the egress side of a software switch's port and of an emulated NIC. It
// has priority queues over a shared buffer and their scheduler; it marks, trims and drops packets,
// and it sends and honours pauses.
//
// # Memory
//
// A switch has one buffer, divided as in plan.SoftSwitch. Memory for lossless priorities is
// reserved by ingress port. The rest is shared. A lossy queue accepts packets while it holds at
// most alpha times the free part of the shared memory. See Choudhury and Hahne, Dynamic Queue
// Length Thresholds for Shared-Memory Packet Switches, IEEE/ACM Transactions on Networking 6(2),
// 1998. With n queues at their thresholds each holds alpha/(1+n*alpha) of it, plus at most a frame.
// Lengths count the bytes of packet.Packet's Data.
//
// # Scheduling
//
// Strict queues are served first, in their order, and the others by deficit round robin (Shreedhar
// and Varghese, Efficient Fair Queuing using Deficit Round Robin, SIGCOMM 1995). Quanta are at
// least one frame, so that a choice takes constant time.
//
// # Purity
//
// The package has no clock and no thread of its own, and every call is given the time. Every draw
// is a pure function of the seed, the flow and the packet's ordinal in it. Nothing is allocated for
// a packet. Nothing here is safe for concurrent use.
package queue

import (
	"math/bits"

	"railbed/internal/clock"
)

// Priorities is the number of queues of a port.
const Priorities = 8

// Mask is a set of priorities, with a bit for each.
type Mask uint8

// MaskOf returns the set of some priorities.
func MaskOf(priorities ...int) (m Mask) {
	for _, q := range priorities {
		m |= 1 << (q & (Priorities - 1))
	}
	return m
}

// Has reports whether a priority is in the set.
func (m Mask) Has(priority uint8) bool { return m>>priority&1 != 0 }

// Len returns the number of priorities in the set.
func (m Mask) Len() int { return bits.OnesCount8(uint8(m)) }

// first returns the lowest priority of a non-empty set.
func (m Mask) first() uint8 { return uint8(bits.TrailingZeros8(uint8(m))) }

// Reason is the reason why a packet was dropped or trimmed.
type Reason uint8

// Reasons. Counters and the capture's comments use the same names.
const (
	Accepted   Reason = iota
	Tail              // The queue's dynamic threshold, or the link's own limit.
	Buffer            // The shared buffer is full.
	Headroom          // A lossless class overran its headroom.
	NICOverrun        // The emulated NIC's queue is full.
	Express           // Trimmed, and the express queue has no room for the header.
	reasons
)

// Outcome is the result for an offered packet.
type Outcome struct {
	// Reason is Accepted, or the reason why the packet was dropped (Dropped) or cut
	// (Packet.Trimmed).
	Reason  Reason
	Dropped bool // the packet is returned to the caller unchanged
	Marked  bool // congestion experienced was set
	Queue   uint8
	// Depth is the length in bytes, before the packet, of the queue that the packet was offered to.
	Depth int64
}

// Signals are the signals of a shared buffer to the sender at the far end of an ingress port. Calls
// are made during Enqueue, Dequeue and Report.
type Signals interface {
	// Pause requests that the sender stop (on) or resume one priority: PFC. It is called once for
	// each change; the callee renews pauses.
	Pause(ingress int, priority uint8, on bool)
	// Stage requests that the sender send one priority at rate / 2^stage: GFC. It is called when
	// the stage changes; the callee repeats it, because a message can be lost.
	Stage(ingress int, priority uint8, stage uint8)
	// ReportAt requests a call of Memory.Report at a time, when time-based GFC must signal rates.
	// Earlier or additional calls do nothing.
	ReportAt(at clock.Time)
}

// rateSignals are Signals that can also signal a rate in fine steps, as time-based GFC does.
// Without Rate time-based GFC signals the first stage whose rate is at most the share.
type rateSignals interface {
	Signals
	// Rate requests that the sender send one priority at share/FullRate of its line's rate; share
	// is never 0. It is called every period while the share is below FullRate, and once when it
	// reaches FullRate again.
	Rate(ingress int, priority uint8, share uint16)
}

// FullRate is the share that means the whole line.
const FullRate = 65535
