package softswitch

import (
	"railbed/fabric/clock"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/testbed/plan"
)

// Kind says what was observed.
type Kind uint8

// Kinds of observations.
const (
	Arrived Kind = iota // from the line
	Queued
	Marked  // queued, and congestion experienced was set
	Trimmed // queued without its payload
	Sent    // to the line, first bit
	Dropped
)

// Observation is what happened to a packet at a port.
type Observation struct {
	Port int // index of Engine.Ports
	Kind Kind
	// Time is when it happened in the model. For Sent it is the first bit's, for
	// Arrived the last bit's.
	Time clock.Time
	// Packet is valid during the call.
	Packet *packet.Packet
	Reason Reason
	Queue  uint8
	// Depth is the bytes that waited in the queue before the packet.
	Depth int64
}

// Observer is told what happens at observed ports, on the engine's thread.
type Observer interface{ Observe(*Observation) }

// PortNumber is the index of a port in Ports.
func (e *Engine) PortNumber(end plan.End) (int, bool) {
	one, known := e.byPort[end]
	if !known {
		return 0, false
	}
	return one.index, true
}

// observe tells the observer; the observation is kept here so that none is
// allocated.
func (e *Engine) observe(o Observation) {
	e.seen = o
	e.options.Observer.Observe(&e.seen)
}

// Observe starts or ends the observation of a port.
func (e *Engine) Observe(index int, on bool) {
	e.ports[index].observed = on && e.options.Observer != nil
}

func (p *port) observeQueued(one *packet.Packet, outcome queue.Outcome) {
	kind := Queued
	switch {
	case outcome.Reason != queue.Accepted:
		kind = Trimmed
	case outcome.Marked:
		kind = Marked
	}
	p.engine.observe(Observation{
		Port: p.index, Kind: kind, Time: p.engine.now, Packet: one, Reason: ofQueue[outcome.Reason], Queue: outcome.Queue, Depth: outcome.Depth,
	})
}

func (p *port) observeSent(one *packet.Packet, at clock.Time) {
	p.engine.observe(Observation{
		Port: p.index, Kind: Sent, Time: at, Packet: one, Queue: one.Priority, Depth: p.egress.Depth(one.Priority),
	})
}

func (p *port) observeArrived(one *packet.Packet) {
	p.engine.observe(Observation{Port: p.index, Kind: Arrived, Time: one.Due, Packet: one, Queue: one.Priority})
}
