package softswitch

import (
	"slices"
	"time"

	"railbed/fabric/clock"
	"railbed/fabric/softswitch/queue"
)

// lookEvery is how often the engine looks for deadlocks while anything is
// paused. Two looks in a row have to find the same ports, and none of them may
// have sent anything in between.
const lookEvery = 10 * time.Millisecond

// maxDeadlocks is how many deadlocks are remembered.
const maxDeadlocks = 16

// Deadlock is a cycle of ports that wait for each other's pauses to end.
type Deadlock struct {
	// Since is when it was first seen.
	Since clock.Time `json:"since_ns"`
	// Ports are the egress ports in the order in which each waits for the next,
	// the last for the first.
	Ports    []string `json:"ports"`
	Priority uint8    `json:"priority"`
	// Over says that it has come undone, by a pause that ran out or a link that
	// went down.
	Over bool `json:"over"`
}

// watch finds deadlocks.
type watch struct {
	planned bool // a look is
	waits   []queue.Wait
	edges   [queue.Priorities][][2]int
	suspect suspect
	found   []Deadlock
}

// suspect is the cycle of the last look.
type suspect struct {
	places   []int
	priority uint8
	sent     uint64
	since    clock.Time
	named    bool // it is the last of found
}

// Deadlocks are those that were found, in their order.
func (e *Engine) Deadlocks() []Deadlock { return slices.Clone(e.watch.found) }

// suspectDeadlock plans a look, because something was paused.
func (e *Engine) suspectDeadlock() {
	if !e.watch.planned {
		e.watch.planned = true
		e.events.push(event{at: e.now.Add(lookEvery), kind: looks})
	}
}

// look searches for a cycle among the ports that are paused now.
func (e *Engine) look() {
	w := &e.watch
	w.planned = false
	places, priority := e.findCycle()
	if places == nil {
		w.end()
		if e.anyPaused() {
			e.suspectDeadlock()
		}
		return
	}
	e.suspectDeadlock()
	sent := uint64(0)
	for _, place := range places {
		sent += e.ports[place].count.SentByPriority[priority]
	}
	if !slices.Equal(places, w.suspect.places) || priority != w.suspect.priority || sent != w.suspect.sent {
		w.end()
		w.suspect = suspect{places: places, priority: priority, sent: sent, since: e.now}
		return
	}
	if w.suspect.named || len(w.found) == maxDeadlocks {
		return
	}
	w.suspect.named = true
	d := Deadlock{Since: w.suspect.since, Priority: priority}
	for _, place := range places {
		d.Ports = append(d.Ports, e.ports[place].name)
	}
	w.found = append(w.found, d)
}

// end forgets the cycle of the last look.
func (w *watch) end() {
	if w.suspect.named {
		w.found[len(w.found)-1].Over = true
	}
	w.suspect = suspect{}
}

// findCycle is a cycle of egress ports at one priority, or nil.
func (e *Engine) findCycle() (places []int, priority uint8) {
	w := &e.watch
	for q := range w.edges {
		w.edges[q] = w.edges[q][:0]
	}
	any := false
	for _, s := range e.switches {
		w.waits = s.memory.Waits(w.waits[:0])
		for _, wait := range w.waits {
			sender := s.ports[wait.Ingress].far
			w.edges[wait.Priority] = append(w.edges[wait.Priority], [2]int{sender.index, s.ports[wait.Egress].index})
			any = true
		}
	}
	if !any {
		return nil, 0
	}
	for q := range w.edges {
		if places := queue.Cycle(w.edges[q]); places != nil {
			return places, uint8(q)
		}
	}
	return nil, 0
}

// anyPaused reports whether any port obeys a pause.
func (e *Engine) anyPaused() bool {
	return slices.ContainsFunc(e.ports, func(p *port) bool { return p.egress.Paused() != 0 })
}
