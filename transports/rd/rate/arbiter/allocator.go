// Package arbiter is a central arbiter of timeslots, after Fastpass (Perry and others, "Fastpass: A
// Centralized Zero-Queue Datacenter Network", SIGCOMM 2014). Senders send requests to the arbiter,
// and it assigns slots to pairs of sender and receiver. In a slot, each sender sends to at most one
// receiver, and each receiver receives from at most one sender. So queues stay empty whatever the
// traffic is. The arbiter is meant for all-to-all traffic whose sizes are unknown in advance, such
// as a mixture of experts.
//
// Allocator decides; it has no clock and no socket. Server and Client carry requests and grants
// over the network.
package arbiter

// Grant is one slot of one pair.
type Grant struct {
	From, To int
	// Bytes is the number of bytes that may be sent in the slot, at most the slot's size.
	Bytes int
}

// Allocator assigns slots to pairs of hosts. Each slot is a maximal matching of the waiting pairs:
// if a waiting pair gets no slot, one of its hosts is taken by another pair. The pair that has
// waited longest since its last slot comes first. So each pair gets a slot after at most as many
// slots as there are waiting pairs, and pairs that compete for a host take turns.
//
// An Allocator is not safe for concurrent use. Allocate allocates no memory of its own.
type Allocator struct {
	hosts    int
	slot     int
	queue    []*pair // the pair with the longest wait first
	pairs    []pair  // by from and to
	sends    []uint64
	receiver []uint64
	number   uint64 // of the slot
	waits    int    // requested bytes that have no slot yet
}

type pair struct {
	from, to int
	wanted   int
	queued   bool
}

// NewAllocator makes an allocator for a number of hosts, with slots of a number of bytes.
func NewAllocator(hosts, slot int) *Allocator {
	a := &Allocator{hosts: hosts, slot: slot, pairs: make([]pair, hosts*hosts),
		queue: make([]*pair, 0, hosts*hosts), sends: make([]uint64, hosts), receiver: make([]uint64, hosts)}
	for i := range a.pairs {
		a.pairs[i].from, a.pairs[i].to = i/hosts, i%hosts
	}
	return a
}

// Want adds bytes that one host has to send to another. It ignores an invalid pair, and an amount
// that would make more than 2^40 bytes.
func (a *Allocator) Want(from, to, bytes int) {
	if from < 0 || to < 0 || from >= a.hosts || to >= a.hosts || from == to || bytes <= 0 {
		return
	}
	p := &a.pairs[from*a.hosts+to]
	if bytes > 1<<40-p.wanted {
		return
	}
	p.wanted += bytes
	a.waits += bytes
	if !p.queued {
		p.queued = true
		a.queue = append(a.queue, p)
	}
}

// Waiting is the number of requested bytes that have no slot yet.
func (a *Allocator) Waiting() int { return a.waits }

// Allocate assigns the next slot, and appends its grants.
func (a *Allocator) Allocate(to []Grant) []Grant {
	a.number++
	first := len(to)
	kept := a.queue[:0]
	for _, p := range a.queue {
		if a.sends[p.from] == a.number || a.receiver[p.to] == a.number {
			kept = append(kept, p)
			continue
		}
		a.sends[p.from], a.receiver[p.to] = a.number, a.number
		bytes := min(p.wanted, a.slot)
		p.wanted -= bytes
		a.waits -= bytes
		p.queued = false
		to = append(to, Grant{p.from, p.to, bytes})
	}
	a.queue = kept
	for _, g := range to[first:] { // behind the waiting pairs
		if p := &a.pairs[g.From*a.hosts+g.To]; p.wanted > 0 && !p.queued {
			p.queued = true
			a.queue = append(a.queue, p)
		}
	}
	return to
}
