package softswitch

import (
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// Kind says what was observed.
type Kind uint8

// Kinds of observations.
const (
	Arrived Kind = iota // from the line
	Queued
	Sent // to the line, first bit
	Dropped
	Lost // on the line, behind the port that had sent it, or before that an overrun NIC had taken it
	// Entered is at a NIC: the node handed a frame over at Packet.Born.
	Entered
)

// Verdict is what a port did to a packet besides.
type Verdict uint8

// Verdicts.
const (
	Nothing Verdict = iota
	Marked          // congestion experienced was set
	Trimmed         // the payload was cut away
	Paused          // a PFC frame that asks for a pause
	Resumed         // a PFC frame that only ends pauses, a GFC frame that gives the whole rate
	Slowed          // a GFC frame that gives less than the whole rate
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
	// Verdict is told when the packet enters the queue and again when it is sent,
	// and of control frames when they are sent and when they arrive.
	Verdict Verdict
	// Reason is that of the verdict, or of the drop.
	Reason Reason
	Queue  uint8
	// Depth is the bytes that waited in the queue before the packet, of Sent
	// behind it, and of Sent with a Verdict before it when that fell: with Trimmed
	// those in the queue that had no room for the packet, not in Queue. Of pauses it
	// is what came in by the port that asks and still waits, and what waits at the
	// port that is asked, at the priority with the most.
	Depth int64
}

// Observer is told what happens at observed ports, on the engine's thread.
type Observer interface{ Observe(*Observation) }

// PortCount is the number of ports of switches and emulated NICs: one more than the
// largest PortNumber. It costs nothing, where Ports reads the state of each.
func (e *Engine) PortCount() int { return len(e.ports) }

// PortNumber is the index of a port in Ports.
func (e *Engine) PortNumber(end plan.End) (int, bool) {
	one, known := e.byPort[end]
	if !known {
		return 0, false
	}
	return one.index, true
}

// observe tells the observer; the observation is kept here so that none is
// allocated. A frame that the fabric made gets its serial when it is first seen.
func (e *Engine) observe(o Observation) {
	if o.Packet.Serial == 0 {
		o.Packet.Serial = e.NextSerial()
	}
	e.seen = o
	e.options.Observer.Observe(&e.seen)
}

// NextSerial is the serial of another frame.
func (e *Engine) NextSerial() uint64 {
	e.serial++
	return e.serial
}

// Observe starts or ends the observation of a port.
func (e *Engine) Observe(index int, on bool) {
	e.ports[index].observed = on && e.options.Observer != nil
}

// NIC reports whether a port is the line side of an emulated NIC.
func (e *Engine) NIC(index int) bool { return e.ports[index].station.nic }

// note keeps what the port did with a packet until that is sent.
func note(one *packet.Packet, verdict Verdict, reason Reason, depth int64) {
	one.Note = packet.Note{Verdict: uint8(verdict), Reason: uint8(reason), Depth: depth}
}

// observeQueued tells of a packet in its queue, which of a trimmed one is not the
// queue that it came for, and of which the outcome says the depth.
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

// judgeControl is what a control frame asks for, and the most that waits at one
// of the priorities that it is about.
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

// waitingFrom is the bytes of a priority that came in by a switch's port and
// still wait.
func (p *port) waitingFrom(priority uint8) int64 { return p.station.memory.Held(p.number, priority) }
