package softswitch

import (
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// pauseRequests are a port's requests to its far end.
type pauseRequests struct {
	active  uint8 // priorities that are to be paused, a bit each
	changed uint8 // priorities whose change was not signalled yet
	gentle  gentle
	// refresh is when pauses that still hold are renewed, at the latest after half of their time.
	refresh clock.Time
	listed  bool // in Engine.signalled
}

func (r *pauseRequests) pending() bool { return r.changed != 0 || r.gentle.say }

// Pause implements queue.Signals: the shared buffer of a switch requests that the sender at an
// ingress port stop or continue. The buffer calls it from within a queue, so the frame is sent
// after the current event has been handled.
func (s *station) Pause(ingress int, priority uint8, on bool) {
	asked := &s.ports[ingress].asked
	bit := uint8(1) << priority
	if on {
		asked.active |= bit
	} else {
		asked.active &^= bit
	}
	asked.changed |= bit
	s.engine.signal(s.ports[ingress])
}

// signal records that a port has a control frame to send.
func (e *Engine) signal(one *port) {
	if !one.asked.listed {
		one.asked.listed = true
		e.signalled = append(e.signalled, one)
	}
}

// settle makes those ports send.
func (e *Engine) settle() {
	for i := 0; i < len(e.signalled); i++ { // more may be added meanwhile
		one := e.signalled[i]
		one.asked.listed = false
		one.kick()
	}
	e.signalled = e.signalled[:0]
}

// controlFrame returns the port's next control frame, or nil. It is sent before all queues and is
// never paused (IEEE 802.1Qbb). Pauses are requested with the switch's quanta, ended by a frame of
// their own, and renewed after half of their time.
func (p *port) controlFrame() *packet.Packet {
	asked := &p.asked
	if !asked.pending() {
		return nil
	}
	e := p.engine
	one := e.pool.Get()
	if one == nil {
		return nil // it is sent as soon as there is memory again
	}
	e.totals.Made++
	one.Born, one.Due, one.Queued = e.now, e.now, e.now
	if asked.changed != 0 {
		fields := wire.PFCFields{Enable: asked.changed | asked.active}
		for q := range fields.Quanta {
			if asked.active>>q&1 != 0 {
				fields.Quanta[q] = p.station.quanta
			}
			if asked.changed>>q&1 != 0 {
				p.count.PausesSent[q]++
			}
		}
		// One frame both stops some priorities and resumes others.
		one.Data = one.Data[:wire.EncodePFCFrame(one.Data, p.mac, &fields)]
		asked.changed = 0
		p.planRefresh()
	} else {
		one.Data = one.Data[:wire.EncodeGFCFrame(one.Data, p.mac, &asked.gentle.fields)]
		p.planRepeat()
	}
	one.Priority = queue.Priorities - 1
	one.Parse()
	if p.observed {
		verdict, reason, depth := p.judgeControl(one.Data[one.Headers.L3:], p.waitingFrom)
		note(one, verdict, reason, depth)
	}
	return one
}

// pauseTime returns how long the port's far end stops for a number of quanta.
func (p *port) pauseTime(quanta uint16) time.Duration {
	rate := uint64(p.far.medium.Direction().Rate)
	if rate == 0 {
		rate = 100e9 // a line without a rate has no bit times
	}
	return quantum(quanta, rate)
}

// planRefresh plans the renewal of current pauses after half of their time. That may be soon on a
// link that has become faster.
func (p *port) planRefresh() {
	e := p.engine
	at := e.now.Add(p.pauseTime(p.station.quanta) / 2)
	if p.asked.active != 0 && (p.asked.refresh <= e.now || at < p.asked.refresh) {
		p.asked.refresh = at
		e.events.push(event{at: at, kind: pauseRefresh, port: int32(p.index)})
	}
}

// refreshPause renews pauses that still hold.
func (p *port) refreshPause() {
	if p.engine.now == p.asked.refresh && p.asked.active != 0 { // otherwise it was done earlier
		p.asked.changed |= p.asked.active
		p.kick()
	}
}

// takeControl handles a MAC control frame and reports whether the packet was one.
func (p *port) takeControl(one *packet.Packet) bool {
	if one.Headers.EtherType != wire.EtherTypeMACControl {
		return false
	}
	body := one.Data[one.Headers.L3:]
	if pfc := wire.PFC(body); pfc.Valid() {
		for q := range queue.Priorities {
			if pfc.Enabled(q) {
				p.honourPause(uint8(q), pfc.Quanta(q))
			}
		}
	} else if gfc := wire.GFC(body); gfc.Valid() {
		p.honourGFC(gfc)
	}
	p.kick()
	return true
}

// honourPause stops a priority for a number of quanta, or resumes it. The paused MAC counts them in bit
// times of its own sending direction, whatever the rate of the direction in which the frame came
// (IEEE 802.3, annex 31B.2).
func (p *port) honourPause(priority uint8, quanta uint16) {
	e := p.engine
	p.count.PausesReceived[priority]++
	until := clock.Time(0)
	if quanta > 0 {
		until = e.now.Add(p.far.pauseTime(quanta))
		e.suspectDeadlock()
		e.events.alarm(until, int32(p.index))
	}
	p.told[priority] = until
	p.resumed = e.now
	p.egress.Pause(e.now, priority, quanta > 0)
}

// pauseEnds resumes priorities whose pause was not renewed, and restores the line's rate of
// priorities whose lower rate was not repeated. It also repeats the port's own rates, and plans the
// next check.
func (p *port) pauseEnds() {
	next := min(p.forget(), p.repeatRates())
	for q := range uint8(queue.Priorities) {
		switch until := p.told[q]; {
		case until == 0:
		case until <= p.engine.now:
			p.told[q] = 0
			p.resumed = p.engine.now
			p.egress.Pause(p.engine.now, q, false)
		default:
			next = min(next, until)
		}
	}
	if next != clock.Never {
		p.engine.events.alarm(next, int32(p.index))
	}
	p.kick()
}
