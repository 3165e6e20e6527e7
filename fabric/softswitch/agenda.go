package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
)

// kind is the kind of an event.
type kind uint8

// Events.
const (
	nodeSends    kind = iota // A frame leaves a node.
	arrives                  // A frame arrives at a port.
	lineFree                 // A port may send again.
	pauseEnds                // A pause, a rate from the far end, or GFC's own rate expires.
	pauseRefresh             // A requested pause must be renewed.
	reports                  // A switch signals rates to its senders.
	looks                    // A switch looks for deadlocks.
	shrinks                  // The buffer that a port reserves for an earlier link is released.
	overdue                  // A packet that a fault holds back was not overtaken in time.
	boots                    // A reboot of a switch ends.
)

// event is an event at a time.
type event struct {
	at     clock.Time
	serial uint64 // events of the same time happen in the order of planning
	packet *packet.Packet
	port   int32
	epoch  uint32
	kind   kind
	leads  bool // later arrivals wait in its port's lane
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.serial < f.serial
}

// agenda is a heap of events with four children per node. It is half as deep as a binary heap, and
// the children are adjacent in memory.
//
// Frames on a link arrive in order, except those that are held back. So only the first frame of a
// link is in the heap, and the others wait in a lane behind it. The heap is as large as the number
// of busy links, not the number of frames, and most frames enter and leave without a comparison.
//
// The end of a pause changes with every frame that requests one, and any node may send such frames;
// the same holds for GFC's requests. So a port has one event for all of them, its alarm, which is
// moved in the heap.
type agenda struct {
	heap   []event
	lanes  []lane  // by the port of arrival
	alarms []int32 // by port: the index of its pauseEnds in the heap plus 1, or 0
	serial uint64
}

// newAgenda returns an agenda for a number of ports.
func newAgenda(ports int) agenda {
	return agenda{lanes: make([]lane, ports), alarms: make([]int32, ports)}
}

// lane is a ring of the arrivals at a port after the one in the heap, in order.
type lane struct {
	ring  []event // its length is 0 or a power of two
	head  int     // index of the first
	count int
	busy  bool // an arrival is in the heap
	last  clock.Time
}

// next returns the time of the first event.
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

// alarm makes the port check, no later than at a time, what it may or must send. If an event is
// already planned for later, alarm moves it.
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

// room returns the entry after the last of the lane.
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

// rise puts an event into an entry of the heap, or above it.
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

// put puts an event into an entry of the heap.
func (a *agenda) put(i int, e *event) {
	a.heap[i] = *e
	if e.kind == pauseEnds {
		a.alarms[e.port] = int32(i) + 1
	}
}

// pop removes the first event; there must be one.
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

// sink replaces the first event by another one.
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

// packets returns the number of packets in the events.
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
