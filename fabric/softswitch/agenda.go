package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
)

// kind says what an event is.
type kind uint8

// Events.
const (
	nodeSends kind = iota // a frame leaves a node
	arrives               // a frame arrives at a port
	lineFree              // a port may send again
	// what the port was told runs out or lets it send, or GFC's rates that it asked for are told
	// again: one a port, planned by alarm
	pauseEnds
	pauseRefresh // a pause that the port asked for must be renewed
	reports      // a switch tells its senders their rates
	looks        // for deadlocks
	shrinks      // what a port keeps for an earlier link
)

// event is something that happens at a time.
type event struct {
	at     clock.Time
	serial uint64 // what was planned first happens first
	packet *packet.Packet
	port   int32
	epoch  uint32
	kind   kind
	leads  bool // its port's lane holds what comes after it
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.serial < f.serial
}

// agenda is a heap of events with four children per node: half as deep as a
// binary one, and the children lie side by side.
//
// Frames on a link arrive in their order, but for those that are held back. So
// only the first of a link is in the heap, and the others wait in a lane behind
// it: the heap is as large as the number of busy links and not as that of
// frames, and most frames enter and leave without a comparison.
//
// The end of a pause moves with every frame that asks for one, and anybody may
// send those; so does what GFC asks for. A port has one event for all of it, its
// alarm, which moves in the heap.
type agenda struct {
	heap   []event
	lanes  []lane  // by the port of arrival
	alarms []int32 // by port: the place in the heap of its pauseEnds and 1, or 0
	serial uint64
}

// newAgenda is an agenda for some ports.
func newAgenda(ports int) agenda {
	return agenda{lanes: make([]lane, ports), alarms: make([]int32, ports)}
}

// lane is a ring of the arrivals at a port behind the one in the heap, in order.
type lane struct {
	ring  []event // its length is 0 or a power of two
	head  int     // of the first
	count int
	busy  bool // one is in the heap
	last  clock.Time
}

// next is the time of the first event.
func (a *agenda) next() clock.Time {
	if len(a.heap) == 0 {
		return clock.Never
	}
	return a.heap[0].at
}

// push plans an event.
func (a *agenda) push(e event) {
	a.serial++
	e.serial = a.serial
	a.insert(&e)
}

// arrival plans the arrival of a packet at a port.
func (a *agenda) arrival(at clock.Time, port int32, one *packet.Packet, epoch uint32) {
	a.serial++
	l := &a.lanes[port]
	if l.busy && at >= l.last {
		l.last = at
		*l.room() = event{at: at, serial: a.serial, kind: arrives, port: port, packet: one, epoch: epoch,
			leads: true}
		return
	}
	e := event{at: at, serial: a.serial, kind: arrives, port: port, packet: one, epoch: epoch, leads: !l.busy}
	if !l.busy {
		l.busy, l.last = true, at
	}
	a.insert(&e)
}

// alarm has the port look what it may or has to send no later than at a time. It moves the
// event that is planned, if that is later.
func (a *agenda) alarm(at clock.Time, port int32) {
	place := a.alarms[port]
	if place == 0 {
		a.push(event{at: at, kind: pauseEnds, port: port})
		return
	}
	e := a.heap[place-1]
	if at >= e.at {
		return
	}
	a.serial++
	e.at, e.serial = at, a.serial
	a.rise(int(place-1), &e)
}

// room is the place behind the last of the lane.
func (l *lane) room() *event {
	if l.count == len(l.ring) {
		longer := make([]event, max(16, 2*len(l.ring)))
		for i := range l.count {
			longer[i] = l.ring[(l.head+i)&(len(l.ring)-1)]
		}
		l.ring, l.head = longer, 0
	}
	l.count++
	return &l.ring[(l.head+l.count-1)&(len(l.ring)-1)]
}

func (a *agenda) insert(e *event) {
	if len(a.heap) == cap(a.heap) {
		a.heap = append(make([]event, 0, max(64, 2*cap(a.heap))), a.heap...)
	}
	a.heap = a.heap[:len(a.heap)+1]
	a.rise(len(a.heap)-1, e)
}

// rise puts an event into a place of the heap, or above it.
func (a *agenda) rise(i int, e *event) {
	heap := a.heap
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&heap[parent]) {
			break
		}
		a.put(i, &heap[parent])
		i = parent
	}
	a.put(i, e)
}

// put puts an event into a place of the heap.
func (a *agenda) put(i int, e *event) {
	a.heap[i] = *e
	if e.kind == pauseEnds {
		a.alarms[e.port] = int32(i) + 1
	}
}

// pop takes the first event; there is one.
func (a *agenda) pop(first *event) {
	*first = a.heap[0]
	if first.kind == pauseEnds {
		a.alarms[first.port] = 0
	}
	if first.leads {
		l := &a.lanes[first.port]
		if l.count > 0 {
			a.sink(&l.ring[l.head])
			l.head = (l.head + 1) & (len(l.ring) - 1)
			l.count--
			return
		}
		l.busy = false
	}
	last := &a.heap[len(a.heap)-1]
	a.heap = a.heap[:len(a.heap)-1]
	if len(a.heap) > 0 {
		a.sink(last)
	}
}

// sink puts an event in the place of the first one.
func (a *agenda) sink(e *event) {
	heap, i := a.heap, 0
	for {
		child := 4*i + 1
		if child >= len(heap) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(heap)); c++ {
			if heap[c].before(&heap[least]) {
				least = c
			}
		}
		if !heap[least].before(e) {
			break
		}
		a.put(i, &heap[least])
		i = least
	}
	a.put(i, e)
}

// packets is how many packets the events have.
func (a *agenda) packets() (count int) {
	for i := range a.heap {
		if a.heap[i].packet != nil {
			count++
		}
	}
	for i := range a.lanes {
		count += a.lanes[i].count
	}
	return count
}
