package queue

import (
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan"
)

// Port is the egress side of one port.
type Port struct {
	memory *Memory // nil in a NIC
	index  int
	limit  int64 // in bytes, of each queue of a NIC, or of all lossy queues of a port together; 0 is none

	head, tail [Priorities]*packet.Packet
	bytes      [Priorities]int64
	packets    int
	backlog    Mask // queues that are not empty
	paused     Mask
	slowed     Mask // queues with a rate of their own

	scheduler
	marker
	trim trimmer
	pace [Priorities]pace
	rate uint64 // of the line, in bit/s
	last Departure
}

// Departure describes a packet that Dequeue returned.
type Departure struct {
	Queue  uint8
	Marked bool // congestion experienced was set on the way out
	// Waited is the time that the packet was in the queue.
	Waited time.Duration
	// Depth is the length of the queue in bytes behind the packet.
	Depth int64
}

// NewNIC returns the egress of an emulated NIC: bounded queues of limit bytes each, strict by
// priority. An overflow there is NICOverrun.
func NewNIC(limit int64) *Port {
	return &Port{limit: limit, scheduler: newScheduler(
		&plan.Scheduler{Strict: []int{7, 6, 5, 4, 3, 2, 1, 0}})}
}

// SetLink sets the properties of the port's link. The rate is the base for Stage and Share. At a
// switch there is also a limit of the bytes that may wait for the link, which drops no packet of a
// lossless priority.
func (p *Port) SetLink(now clock.Time, d plan.Direction) {
	p.rate = uint64(d.Rate)
	if p.memory != nil {
		p.limit = int64(d.Queue)
	}
	for left := p.slowed; left != 0; left &= left - 1 {
		q := left.first()
		if share := p.pace[q].part; share != 0 {
			p.slow(now, q, p.part(share))
		}
	}
}

// Enqueue offers a packet. A dropped packet is returned to the caller unchanged.
func (p *Port) Enqueue(now clock.Time, one *packet.Packet) Outcome {
	q := one.Priority & (Priorities - 1)
	length := int64(len(one.Data))
	o := Outcome{Queue: q, Depth: p.bytes[q]}
	m := p.memory
	switch {
	case m == nil:
		if p.bytes[q]+length > p.limit {
			o.Reason, o.Dropped = NICOverrun, true
			return o
		}
	case m.lossless.Has(q):
		if o.Reason = m.take(now, one.Ingress, q, length); o.Reason != Accepted {
			o.Dropped = true
			return o
		}
	default:
		if o.Reason = p.admit(q, length); o.Reason != Accepted {
			if q = p.cut(one, q, &o); o.Dropped {
				return o
			}
			length = int64(len(one.Data))
		}
		m.keep(one.Ingress, q, length)
	}
	if p.red.Has(q) && !one.Trimmed {
		o.Marked = p.early(one, o.Depth)
	}
	p.append(now, q, one, length)
	return o
}

// admit decides whether a lossy queue may accept a packet.
func (p *Port) admit(q uint8, length int64) Reason {
	switch {
	case length > p.memory.free():
		return Buffer
	case !p.memory.within(p.bytes[q]), p.limit > 0 && p.lossy()+length > p.limit:
		return Tail
	}
	return Accepted
}

// lossy returns the waiting bytes of all priorities that are not lossless.
func (p *Port) lossy() (total int64) {
	for q, b := range p.bytes {
		if !p.memory.lossless.Has(uint8(q)) {
			total += b
		}
	}
	return total
}

// append appends a packet to a queue.
func (p *Port) append(now clock.Time, q uint8, one *packet.Packet, length int64) {
	one.Next, one.Queued = nil, now
	if last := p.tail[q]; last != nil {
		last.Next = one
	} else {
		p.head[q] = one
	}
	p.tail[q] = one
	p.bytes[q] += length
	p.packets++
	p.backlog |= 1 << q
}

// Dequeue removes and returns the packet to be sent next, or nil if none may be sent now. In that
// case Next returns the time at which another call can return a packet.
func (p *Port) Dequeue(now clock.Time) *packet.Packet {
	ready := p.backlog &^ p.paused
	if waiting := ready & p.slowed; waiting != 0 {
		ready &^= p.tooEarly(waiting, now)
	}
	if ready == 0 {
		return nil
	}
	q := p.choose(ready, &p.head)
	one := p.head[q]
	length := p.remove(q, one)
	if p.slowed.Has(q) {
		p.pace[q].sent(now, length)
	}
	p.last = Departure{Queue: q, Waited: now.Sub(one.Queued), Depth: p.bytes[q]}
	if p.sharp.Has(q) {
		p.last.Marked = p.persistent(q, now, one)
	}
	if p.memory != nil {
		p.memory.give(one, q, length)
	}
	return one
}

// remove removes the first packet of a queue and returns its length.
func (p *Port) remove(q uint8, one *packet.Packet) int64 {
	length := int64(len(one.Data))
	if p.head[q] = one.Next; one.Next == nil {
		p.tail[q] = nil
		p.backlog &^= 1 << q
		p.emptied(q)
	}
	one.Next = nil
	p.bytes[q] -= length
	p.packets--
	return length
}

// Last describes the packet that Dequeue last returned.
func (p *Port) Last() Departure { return p.last }

// Flush removes all packets, even of paused priorities, and passes them to give. Senders that were
// paused or slowed because of them resume.
func (p *Port) Flush(give func(*packet.Packet)) {
	for q := range uint8(Priorities) {
		for one := p.head[q]; one != nil; one = p.head[q] {
			length := p.remove(q, one)
			if p.memory != nil {
				p.memory.give(one, q, length)
			}
			give(one)
		}
	}
}

// Next returns the time at which a waiting packet may be sent, without further calls. It is
// clock.Never if none waits or all are paused. Only rates below the line's (GFC) make it later than
// now.
func (p *Port) Next(now clock.Time) clock.Time {
	ready := p.backlog &^ p.paused
	if ready&^p.slowed != 0 {
		return now
	}
	next := clock.Never
	for ; ready != 0; ready &= ready - 1 {
		next = min(next, p.pace[ready.first()].next)
	}
	return max(next, now)
}

// Pause stops or resumes a priority. The caller keeps track of the pause's time.
func (p *Port) Pause(now clock.Time, priority uint8, on bool) {
	if on {
		p.paused |= 1 << priority
	} else {
		p.paused &^= 1 << priority
	}
}

// Paused returns the paused priorities.
func (p *Port) Paused() Mask { return p.paused }

// Depth returns the waiting bytes of one priority.
func (p *Port) Depth(priority uint8) int64 { return p.bytes[priority] }

// Packets returns the number of waiting packets of all priorities.
func (p *Port) Packets() int { return p.packets }

// Bytes returns the waiting bytes of all priorities.
func (p *Port) Bytes() (total int64) {
	for _, b := range p.bytes {
		total += b
	}
	return total
}
