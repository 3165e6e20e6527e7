package softswitch

import (
	"slices"
	"time"

	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
)

// lookEvery is the interval of the engine's checks for deadlocks while anything is paused. Two
// checks in a row must find the same ports, and none of them may have sent anything in between.
const lookEvery = 10 * time.Millisecond

// maxDeadlocks is how many deadlocks are kept.
const maxDeadlocks = 16

// Deadlock is a cycle of ports that wait for each other's pauses to end.
type Deadlock struct {
	// Since is the time at which the cycle was first seen.
	Since clock.Time `json:"since_ns"`
	// Ports are the egress ports. Each waits for the next, and the last for the first.
	Ports    []string `json:"ports"`
	Priority uint8    `json:"priority"`
	// Over is set if the deadlock has ended, because a pause ran out or a link went down.
	Over bool `json:"over"`

	number uint64 // among all deadlocks, from 1
}

// watch detects deadlocks.
type watch struct {
	planned  bool // a check is planned
	waits    []queue.Wait
	edges    [queue.Priorities][][2]int // of the last check, sorted
	claimed  []queue.Mask               // by port: the priorities at which it is on a cycle that still exists
	suspects []suspect
	found    []Deadlock
	count    uint64 // number of all deadlocks found
}

// suspect is a cycle found by the last check.
type suspect struct {
	places   []int
	priority uint8
	sent     uint64
	since    clock.Time
	number   uint64 // of the deadlock that it is; 0 is none yet
}

// Deadlocks returns the latest 16 deadlocks, in the order of detection; deadlocks that have ended
// are discarded first. Cycles with a common port and priority count as one deadlock, which is
// described by one of them.
func (e *Engine) Deadlocks() []Deadlock { return slices.Clone(e.watch.found) }

// DeadlockCount returns the number of detected deadlocks, including discarded deadlocks.
func (e *Engine) DeadlockCount() uint64 { return e.watch.count }

// suspectDeadlock plans a check, because something was paused.
func (e *Engine) suspectDeadlock() {
	if !e.watch.planned {
		e.watch.planned = true
		e.events.push(event{at: e.now.Add(lookEvery), kind: looks})
	}
}

// findCycles searches for cycles among the currently paused ports. A cycle of the last check is the same
// one if each of its ports still waits for the next, whatever other ports wait, and none has sent
// anything. findCycles searches the other ports for new cycles.
func (e *Engine) findCycles() {
	w := &e.watch
	w.planned = false
	e.findWaits()
	standing := w.suspects[:0]
	for _, one := range w.suspects {
		if !w.circles(&one) || e.sentOn(&one) != one.sent {
			w.end(&one)
			continue
		}
		if one.number == 0 {
			one.number = e.name(&one)
		}
		for _, place := range one.places {
			w.claimed[place] |= queue.MaskOf(int(one.priority))
		}
		standing = append(standing, one)
	}
	clear(w.suspects[len(standing):])
	w.suspects = standing
	for q := range w.edges {
		rest := slices.DeleteFunc(w.edges[q], func(edge [2]int) bool {
			return w.claimed[edge[0]].Has(uint8(q)) || w.claimed[edge[1]].Has(uint8(q))
		})
		for _, places := range queue.Cycles(rest) {
			one := suspect{places: places, priority: uint8(q), since: e.now}
			one.sent = e.sentOn(&one)
			w.suspects = append(w.suspects, one)
		}
	}
	if len(w.suspects) > 0 || e.anyPaused() {
		e.suspectDeadlock()
	}
}

// findWaits determines the edges of all switches: which egress ports wait for which.
func (e *Engine) findWaits() {
	w := &e.watch
	for q := range w.edges {
		w.edges[q] = w.edges[q][:0]
	}
	for _, s := range e.switches {
		w.waits = s.memory.Waits(w.waits[:0])
		for _, wait := range w.waits {
			sender := s.ports[wait.Ingress].far
			w.edges[wait.Priority] = append(w.edges[wait.Priority],
				[2]int{sender.index, s.ports[wait.Egress].index})
		}
	}
	for q := range w.edges {
		slices.SortFunc(w.edges[q], compareEdges)
	}
	if w.claimed == nil {
		w.claimed = make([]queue.Mask, len(e.ports))
	}
	clear(w.claimed)
}

func compareEdges(a, b [2]int) int { return slices.Compare(a[:], b[:]) }

// circles reports whether the ports of a cycle still wait for each other.
func (w *watch) circles(one *suspect) bool {
	for i, from := range one.places {
		edge := [2]int{from, one.places[(i+1)%len(one.places)]}
		if _, waits := slices.BinarySearchFunc(w.edges[one.priority], edge, compareEdges); !waits {
			return false
		}
	}
	return true
}

// sentOn returns how many frames the ports of a cycle have sent at its priority.
func (e *Engine) sentOn(one *suspect) (sent uint64) {
	for _, place := range one.places {
		sent += e.ports[place].count.SentByPriority[one.priority]
	}
	return sent
}

// name records a cycle as a deadlock and returns its number.
func (e *Engine) name(one *suspect) uint64 {
	w := &e.watch
	if len(w.found) == maxDeadlocks {
		oldest := max(0, slices.IndexFunc(w.found, func(d Deadlock) bool { return d.Over }))
		w.found = slices.Delete(w.found, oldest, oldest+1)
	}
	w.count++
	d := Deadlock{Since: one.since, Priority: one.priority, number: w.count}
	for _, place := range one.places {
		d.Ports = append(d.Ports, e.ports[place].name)
	}
	w.found = append(w.found, d)
	return d.number
}

// end marks a cycle's deadlock as over, if there is one and it is still kept.
func (w *watch) end(one *suspect) {
	at := slices.IndexFunc(w.found, func(d Deadlock) bool { return d.number == one.number })
	if at >= 0 {
		w.found[at].Over = true
	}
}

// anyPaused reports whether any port honours a pause.
func (e *Engine) anyPaused() bool {
	return slices.ContainsFunc(e.ports, func(p *port) bool { return p.egress.Paused() != 0 })
}
