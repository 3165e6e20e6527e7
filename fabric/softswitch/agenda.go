package softswitch

import (
	"railbed/fabric/clock"
	"railbed/fabric/softswitch/packet"
)

// kind says what an event is.
type kind uint8

// Events.
const (
	nodeSends    kind = iota // a frame leaves a node
	arrives                  // a frame arrives at a port
	lineFree                 // a port may send again
	pauseEnds                // a pause that the port was told of runs out
	pauseRefresh             // a pause that the port asked for must be renewed
	reports                  // a switch tells its senders their rates
	looks                    // for deadlocks
)

// event is something that happens at a time.
type event struct {
	at     clock.Time
	serial uint64 // what was planned first happens first
	packet *packet.Packet
	port   int32
	epoch  uint32
	kind   kind
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.serial < f.serial
}

// agenda is a heap of events with four children per node: half as deep as a
// binary one, and the children lie side by side.
type agenda struct {
	heap   []event
	serial uint64
}

// next is the time of the first event.
func (a *agenda) next() clock.Time {
	if len(a.heap) == 0 {
		return clock.Never
	}
	return a.heap[0].at
}

func (a *agenda) push(e event) {
	a.serial++
	e.serial = a.serial
	a.heap = append(a.heap, e)
	heap, i := a.heap, len(a.heap)-1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&heap[parent]) {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = e
}

func (a *agenda) pop() event {
	heap := a.heap
	first := heap[0]
	last := heap[len(heap)-1]
	heap[len(heap)-1].packet = nil
	heap = heap[:len(heap)-1]
	a.heap = heap
	if len(heap) == 0 {
		return first
	}
	i := 0
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
		if !heap[least].before(&last) {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	heap[i] = last
	return first
}
