package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// Kind is the kind of an observation.
type Kind uint8

// Kinds of observations.
const (
	Arrived Kind = iota // It came from the line.
	Queued
	Sent // Its first bit went to the line.
	Dropped
	Lost // Lost on the line after the port had sent it, or dropped by an overrun NIC that had accepted it.
	// Entered is observed at a NIC: the node handed a frame over at Packet.Born.
	Entered
	// Harmed is observed at a port that sends a packet to which a fault does something other than dropping.
	Harmed
)

// Verdict is the port's action on a packet besides queueing it.
type Verdict uint8

// Verdicts.
const (
	Nothing Verdict = iota
	Marked          // Congestion experienced was set.
	Trimmed         // The payload was cut away.
	Paused          // A PFC frame that requests a pause.
	Resumed         // A PFC frame that only ends pauses, or a GFC frame that allows the whole rate.
	Slowed          // A GFC frame that allows less than the whole rate.
	// What faults do to packets. A mark of a fault is Marked.
	Delayed
	Duplicated
	Corrupted
	Truncated
	Rewritten
	Mirrored
	Misrouted
	PauseRequested // its receiver sends a pause
)

// Observation is an event of a packet at a port.
type Observation struct {
	Port int // index in Engine.Ports
	Kind Kind
	// Time is the model's time of the event: of the first bit for Sent, of the last bit for
	// Arrived.
	Time clock.Time
	// Packet is valid during the call.
	Packet *packet.Packet
	// Verdict is set when the packet enters the queue and again when it is sent. For control frames
	// it is set when they are sent and when they arrive.
	Verdict Verdict
	// Reason is the reason of the verdict or of the drop.
	Reason Reason
	Queue  uint8
	// Fault is the number of the fault that did it, 0 without one.
	Fault uint8
	// Depth is the number of bytes in the queue ahead of the packet; for Sent it is the number
	// behind it. For Sent with a Verdict it is the number ahead of the packet at the time of the
	// verdict. For Trimmed it counts the queue that had no room for the packet, not Queue. For
	// pauses it has the priority with the most bytes. At the port that sends the pause it counts
	// waiting packets that came in by the port; at the receiving port it counts the port's queue.
	Depth int64
}

// Observer receives the observations of observed ports, on the engine's thread.
type Observer interface{ Observe(*Observation) }

// PortCount returns the number of ports of switches and emulated NICs: one more than the largest
// PortNumber. It costs nothing, while Ports reads the state of each port.
func (e *Engine) PortCount() int { return len(e.ports) }

// PortNumber returns the index of a port in Ports.
func (e *Engine) PortNumber(end plan.End) (int, bool) {
	one, known := e.byPort[end]
	if !known {
		return 0, false
	}
	return one.index, true
}

// observe calls the observer. The engine holds the observation, so that none is allocated. A frame
// that the fabric made gets its serial when it is first observed.
func (e *Engine) observe(o Observation) {
	if o.Packet.Serial == 0 {
		o.Packet.Serial = e.NextSerial()
	}
	e.seen = o
	e.options.Observer.Observe(&e.seen)
}

// NextSerial returns the serial of a new frame.
func (e *Engine) NextSerial() uint64 {
	e.serial++
	return e.serial
}

// Observe starts or stops the observation of a port.
func (e *Engine) Observe(index int, on bool) {
	e.ports[index].observed = on && e.options.Observer != nil
}

// NIC returns the number of the emulated NIC whose line side a port is, and false for other ports.
func (e *Engine) NIC(index int) (number int, is bool) {
	s := e.ports[index].station
	return s.index, s.nic
}

// note records the port's action on a packet until the packet is sent.
func note(one *packet.Packet, verdict Verdict, reason Reason, depth int64) {
	one.Note = packet.Note{Verdict: uint8(verdict), Reason: uint8(reason), Depth: depth}
}

// observeQueued reports a packet in its queue. For a trimmed packet this is not the queue that it
// was offered to; the outcome has the queue.
func (p *port) observeQueued(one *packet.Packet, outcome queue.Outcome) {
	p.engine.observe(Observation{
		Port:    p.index,
		Kind:    Queued,
		Time:    p.engine.now,
		Packet:  one,
		Verdict: Verdict(one.Note.Verdict),
		Reason:  Reason(one.Note.Reason),
		Queue:   outcome.Queue, Depth: p.egress.Depth(outcome.Queue) - int64(len(one.Data)),
	})
}

func (p *port) observeSent(one *packet.Packet, at clock.Time) {
	o := Observation{Port: p.index, Kind: Sent, Time: at, Packet: one, Queue: one.Priority,
		Depth: p.egress.Depth(one.Priority)}
	if n := &one.Note; n.Verdict != 0 {
		o.Verdict, o.Reason, o.Depth = Verdict(n.Verdict), Reason(n.Reason), n.Depth
	}
	p.engine.observe(o)
}

func (p *port) observeArrived(one *packet.Packet) {
	o := Observation{Port: p.index, Kind: Arrived, Time: one.Due, Packet: one, Queue: one.Priority}
	if one.Headers.EtherType == wire.EtherTypeMACControl {
		o.Verdict, o.Reason, o.Depth = p.judgeControl(one.Data[one.Headers.L3:], p.egress.Depth)
	}
	p.engine.observe(o)
}

// judgeControl returns the request of a control frame, and the largest number of waiting bytes
// among its priorities.
func (p *port) judgeControl(body []byte, waiting func(priority uint8) int64) (v Verdict, why Reason,
	depth int64) {
	var about uint8
	if pfc := wire.PFC(body); pfc.Valid() {
		v, why, about = Resumed, PFC, pfc.Enable()
		for q := range queue.Priorities {
			if pfc.Enabled(q) && pfc.Quanta(q) > 0 {
				v = Paused
			}
		}
	} else if m := wire.GFC(body); m.Valid() {
		v, why, about = Resumed, GFC, m.Enable()
		for q := range queue.Priorities {
			value := m.Value(q)
			if m.Enable()>>q&1 != 0 && (m.Share() && value < queue.FullRate || !m.Share() && value > 0) {
				v = Slowed
			}
		}
	}
	for q := range uint8(queue.Priorities) {
		if about>>q&1 != 0 {
			depth = max(depth, waiting(q))
		}
	}
	return v, why, depth
}

// waitingFrom returns the waiting bytes of a priority that came in by a switch's port.
func (p *port) waitingFrom(priority uint8) int64 { return p.station.memory.Held(p.number, priority) }
