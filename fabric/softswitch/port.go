package softswitch

import (
	"time"

	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan"
)

// port is a switch's port, or the line side of an emulated NIC.
type port struct {
	index   int // in Engine.ports
	number  int // in station.ports
	end     plan.End
	name    string
	mac     wire.MAC
	station *station
	engine  *Engine
	link    *link
	far     *port

	egress *queue.Port
	medium *medium.Medium // the medium of the sending direction
	// free is when the sending of the current frame ends.
	free clock.Time
	// waking is set if a lineFree event is planned.
	waking bool
	// asked are this port's requests to the far end, told the pauses that the far end requested
	// from this port.
	asked    pauseRequests
	told     [queue.Priorities]clock.Time
	resumed  clock.Time                   // when the last pause ended
	slowed   [queue.Priorities]clock.Time // until when a rate below the line's, signalled by GFC, holds
	observed bool
	count    Counters
	dropped  tally
	marked   tally
	trimmed  tally
	use      use  // of the line, if the switch writes telemetry
	kept     kept // buffer that it reserves in its switch
	faults   []*faultPlace
	detours  []*faultPlace // faults that misroute
	held     []heldBack
	copies   []time.Duration // memory for harm.copies
}

// join connects the port to a link.
func (p *port) join(l *link, far *port, m *medium.Medium) {
	p.link, p.far, p.medium = l, far, m
	p.egress.SetLink(p.engine.now, m.Direction())
}

// offer puts a packet into the port's queue, and sends if the line is free.
func (p *port) offer(one *packet.Packet) {
	came := one.Priority
	outcome := p.egress.Enqueue(p.engine.now, one)
	if outcome.Dropped {
		p.engine.drop(p, one, ofQueue[outcome.Reason], outcome.Depth)
		return
	}
	switch {
	case outcome.Reason != queue.Accepted:
		why := ofQueue[outcome.Reason]
		p.trimmed.add(why, came)
		note(one, Trimmed, why, outcome.Depth)
	case outcome.Marked:
		p.marked.add(RED, came)
		note(one, Marked, RED, outcome.Depth)
	}
	if p.observed {
		p.observeQueued(one, outcome)
	}
	p.kick()
}

// kick sends everything that can be sent now, and plans to continue when the line is free.
func (p *port) kick() {
	e := p.engine
	for !p.waking {
		if p.free > e.now {
			p.wakeAt(p.free)
			return
		}
		one := p.controlFrame()
		own := one != nil
		if !own {
			one = p.egress.Dequeue(e.now)
		}
		if one == nil {
			// Other priorities, the port's own messages and changed rates need not wait for this
			// time.
			if next := p.egress.Next(e.now); next != clock.Never {
				e.events.alarm(next, int32(p.index))
			}
			return
		}
		if last := p.egress.Last(); last.Marked && !own {
			p.marked.add(ECNSharp, last.Queue)
			note(one, Marked, ECNSharp, last.Depth)
		}
		p.send(one)
		if p.free > e.now && p.egress.Packets() == 0 && !p.asked.pending() {
			return // the next packet checks whether the line is free
		}
	}
}

func (p *port) wakeAt(at clock.Time) {
	p.waking = true
	p.engine.events.push(event{at: at, kind: lineFree, port: int32(p.index)})
}

// send puts a packet on the line. A packet that did not wait starts when it arrived, if the line
// was free then, so that a frame that was noticed late is not delayed further. This does not apply
// if the priority is lossless at the far end. Such frames would arrive faster than the line carries
// them, and a pause would come too late.
func (p *port) send(one *packet.Packet) {
	e := p.engine
	start := e.now
	if one.Queued == e.now && !p.far.station.lossless.Has(one.Priority) {
		start = max(p.free, p.resumed, min(one.Due, e.now))
	}
	p.free = start.Add(p.medium.Serialise(len(one.Data)))
	p.count.Sent.add(len(one.Data))
	p.count.SentByPriority[one.Priority]++
	if p.station.telemetry {
		p.writeHop(one, start)
		p.use.add(start, p.free)
	}
	if p.observed {
		p.observeSent(one, start)
	}
	one.Note = packet.Note{}
	if !p.link.up {
		e.drop(p, one, LinkDown, 0)
		return
	}
	var harm harm
	if len(p.faults) > 0 {
		if harm = p.harm(one); harm.dropped {
			return
		}
	}
	if harm.overtaken > 0 {
		p.holdBack(one, harm)
		return
	}
	p.transmit(one, p.free, harm)
	if len(p.held) > 0 {
		p.release()
	}
}

// transmit puts a packet on the medium at the end of its serialisation.
func (p *port) transmit(one *packet.Packet, at clock.Time, harm harm) {
	e := p.engine
	transit := p.medium.Send(at, one)
	if transit.Reason != medium.Arrives {
		e.drop(p, one, transit.Reason, 0)
		return
	}
	if transit.Corrupt >= 0 {
		one.Data[transit.Corrupt/8] ^= 1 << (transit.Corrupt % 8)
		one.Parse()
		p.count.Corrupted++
	}
	at = transit.At.Add(harm.delay)
	if transit.Again != clock.Never {
		p.launchCopy(one, at)
	}
	for _, after := range harm.copies {
		p.launchCopy(one, at.Add(after))
	}
	p.launch(one, at)
}

// launchCopy plans the arrival of a copy of a packet at the far end.
func (p *port) launchCopy(one *packet.Packet, at clock.Time) {
	if twin := p.copied(one); twin != nil {
		p.count.Duplicated++
		twin.Flow = medium.Twin(one.Flow)
		p.launch(twin, at)
	}
}

// copied returns a copy of a packet for this port. Without packet memory it returns nil and counts
// the copy as dropped; no capture shows that drop.
func (p *port) copied(one *packet.Packet) *packet.Packet {
	p.engine.totals.Made++
	twin := p.engine.pool.Copy(one)
	if twin == nil {
		p.dropped.add(Memory, p.station.priorityOf(one))
	}
	return twin
}

// launch plans a packet's arrival at the far end.
func (p *port) launch(one *packet.Packet, at clock.Time) {
	one.Due = at
	p.engine.events.arrival(at, int32(p.far.index), one, p.link.epoch)
}

// arrive receives a packet from the line.
func (p *port) arrive(one *packet.Packet, epoch uint32) {
	e := p.engine
	if epoch != p.link.epoch {
		e.drop(p, one, LinkDown, 0)
		return
	}
	p.count.Received.add(len(one.Data))
	if p.observed {
		p.observeArrived(one)
	}
	if p.takeControl(one) {
		e.totals.Consumed++
		e.pool.Put(one)
		return
	}
	if p.station.nic {
		e.toNode(p.station, one)
		return
	}
	p.forward(one)
}

// forward decides how a packet leaves the switch.
func (p *port) forward(one *packet.Packet) {
	e, sw := p.engine, p.station
	one.Ingress = int32(p.number)
	if sw.aggregator != nil && sw.aggregator.takes(p, one) {
		sw.aggregator.take(p, one)
		return
	}
	decision := sw.table.Decide(e.now, one, p.number)
	switch decision.Action {
	case forward.Send:
		sw.enqueue(one, decision.Port)
	case forward.Flood:
		sw.flood(one, p.number)
	case forward.Reply:
		e.totals.Made++
		decision.Reply.Due, decision.Reply.Born = one.Due, e.now
		decision.Reply.Ingress = -1
		p.finish(one, decision.Reason)
		sw.enqueue(decision.Reply, decision.Port)
	case forward.Drop:
		p.finish(one, decision.Reason)
	}
}

// finish ends a packet that the switch does not forward.
func (p *port) finish(one *packet.Packet, why forward.Reason) {
	if why == forward.Consumed {
		p.engine.totals.Consumed++
		p.engine.pool.Put(one)
		return
	}
	p.engine.drop(p, one, ofForward[why], 0)
}

// enqueue puts a packet into the queue of the switch's port.
func (s *station) enqueue(one *packet.Packet, out int) {
	one.Priority = s.priorityOf(one)
	to := s.ports[out]
	if len(to.detours) > 0 {
		to = to.detour(one)
	}
	to.offer(one)
}

// flood sends a packet out of every port except the one by which it arrived.
func (s *station) flood(one *packet.Packet, ingress int) {
	e := s.engine
	last := -1
	for i, out := range s.ports {
		if i == ingress || !out.link.up {
			continue
		}
		if last >= 0 {
			if twin := s.ports[last].copied(one); twin != nil {
				s.enqueue(twin, last)
			}
		}
		last = i
	}
	if last < 0 {
		e.drop(s.ports[ingress], one, Hairpin, 0)
		return
	}
	s.enqueue(one, last)
}
