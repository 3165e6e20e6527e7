// Package queue is the egress side of a software switch's port and of an
// emulated NIC: priority queues over a shared buffer, their scheduler, what
// they mark, trim and drop, and the pauses that they ask for and obey.
//
// It is pure: it has no clock and no thread of its own, and every call is
// given the time. It is not safe for concurrent use.
package queue

import (
	"railbed/fabric/clock"
	"railbed/fabric/softswitch/packet"
)

// Priorities is the number of queues of a port.
const Priorities = 8

// Reason says why a packet was dropped or trimmed.
type Reason uint8

// Reasons. The names are those of counters and of the capture's comments.
const (
	Accepted   Reason = iota
	Tail              // the queue's dynamic threshold or own limit
	Buffer            // the shared buffer is full
	Headroom          // a lossless class overran its headroom
	NICOverrun        // the emulated NIC's queue is full
)

// Outcome is what became of an offered packet.
type Outcome struct {
	// Reason is Accepted, or why the packet was dropped (Dropped) or cut
	// (Packet.Trimmed).
	Reason  Reason
	Dropped bool // the packet is the caller's again
	Marked  bool // congestion experienced was set
	Queue   uint8
	// Depth is the queue's length in bytes before the packet.
	Depth int64
}

// Signals is what a shared buffer tells the sender at the far end of an
// ingress port. Calls are made during Enqueue and Dequeue.
type Signals interface {
	// Pause asks for a stop (on) or an end of the stop of one priority: PFC.
	Pause(ingress int, priority uint8, on bool)
	// Stage tells the sender to send one priority at rate / 2^stage: GFC.
	Stage(ingress int, priority uint8, stage uint8)
}

// Sender is what an egress port has been told by the far end.
// (see Port.Pause, Port.Limit)

// Memory is the shared packet buffer of one switch.
type Memory struct{}

// NewMemory returns the buffer of a switch.
func NewMemory() *Memory { return &Memory{} }

// Port is the egress side of one port.
type Port struct {
	head, tail [Priorities]*packet.Packet
	bytes      [Priorities]int64
	paused     [Priorities]bool
	limit      int64
}

// NewNIC returns the egress of an emulated NIC: bounded queues of limit bytes
// each, strict by priority, whose overflow is NICOverrun.
func NewNIC(limit int64) *Port { return &Port{limit: limit} }

// Enqueue offers a packet.
func (p *Port) Enqueue(now clock.Time, one *packet.Packet) Outcome {
	q := one.Priority
	o := Outcome{Queue: q, Depth: p.bytes[q]}
	if p.bytes[q]+int64(len(one.Data)) > p.limit {
		o.Reason, o.Dropped = NICOverrun, true
		return o
	}
	one.Next = nil
	if p.tail[q] == nil {
		p.head[q] = one
	} else {
		p.tail[q].Next = one
	}
	p.tail[q] = one
	p.bytes[q] += int64(len(one.Data))
	return o
}

// Dequeue takes the packet to be sent next, or nil when none may be sent now;
// then Next says from when on another call can have a result.
func (p *Port) Dequeue(now clock.Time) *packet.Packet {
	for q := Priorities - 1; q >= 0; q-- {
		one := p.head[q]
		if one == nil || p.paused[q] {
			continue
		}
		if p.head[q] = one.Next; p.head[q] == nil {
			p.tail[q] = nil
		}
		one.Next = nil
		p.bytes[q] -= int64(len(one.Data))
		return one
	}
	return nil
}

// Next is when a packet that waits may be sent, without further calls:
// clock.Never while all are paused or none waits. Only rates below the line's
// (GFC) give another time than now.
func (p *Port) Next(now clock.Time) clock.Time {
	for q := range Priorities {
		if p.head[q] != nil && !p.paused[q] {
			return now
		}
	}
	return clock.Never
}

// Pause stops a priority, or lets it go on; whoever calls keeps the time of
// the pause's quanta.
func (p *Port) Pause(now clock.Time, priority uint8, on bool) { p.paused[priority] = on }

// Depth is the bytes that wait at one priority.
func (p *Port) Depth(priority uint8) int64 { return p.bytes[priority] }

// Bytes is the bytes that wait at all priorities.
func (p *Port) Bytes() (total int64) {
	for _, b := range p.bytes {
		total += b
	}
	return total
}
