package softswitch

import (
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// pauseRequests are what a port asks of the far end.
type pauseRequests struct {
	active  uint8 // priorities that are to be paused, a bit each
	changed uint8 // priorities whose change was not said yet
	gentle  gentle
	// refresh is when pauses are renewed that still hold then; never later than half
	// of their time.
	refresh clock.Time
	listed  bool // in Engine.signalled
}

func (r *pauseRequests) pending() bool { return r.changed != 0 || r.gentle.say }

// Pause implements queue.Signals: the shared buffer of a switch asks the sender at an ingress port
// to stop or to continue. The buffer calls it from within a queue, so the frame is sent after the
// current event has been handled.
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

// signal remembers a port that has something to say.
func (e *Engine) signal(one *port) {
	if !one.asked.listed {
		one.asked.listed = true
		e.signalled = append(e.signalled, one)
	}
}

// settle lets those ports speak.
func (e *Engine) settle() {
	for i := 0; i < len(e.signalled); i++ { // more may come meanwhile
		one := e.signalled[i]
		one.asked.listed = false
		one.kick()
	}
	e.signalled = e.signalled[:0]
}

// controlFrame is the next frame of the port's own, or nil. It goes before all
// queues and is never paused (IEEE 802.1Qbb). Pauses are asked for with the
// switch's quanta, ended by a frame of their own, and renewed when half of the
// time is over.
func (p *port) controlFrame() *packet.Packet {
	asked := &p.asked
	if !asked.pending() {
		return nil
	}
	e := p.engine
	one := e.pool.Get()
	if one == nil {
		return nil // said as soon as there is memory again
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
		// Who is asked to stop and who to go on are told in one frame.
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

// pauseTime is how long a far end of the port's stops for some quanta.
func (p *port) pauseTime(quanta uint16) time.Duration {
	rate := uint64(p.far.medium.Direction().Rate)
	if rate == 0 {
		rate = 100e9 // a line without a rate has no bit times
	}
	return quantum(quanta, rate)
}

// planRefresh has the pauses that hold renewed when half of their time is over,
// which is short on a link that has become faster.
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
	if p.engine.now == p.asked.refresh && p.asked.active != 0 { // else it was done earlier
		p.asked.changed |= p.asked.active
		p.kick()
	}
}

// takeControl obeys a MAC control frame and reports whether it was one.
func (p *port) takeControl(one *packet.Packet) bool {
	if one.Headers.EtherType != wire.EtherTypeMACControl {
		return false
	}
	body := one.Data[one.Headers.L3:]
	if pfc := wire.PFC(body); pfc.Valid() {
		for q := range queue.Priorities {
			if pfc.Enabled(q) {
				p.obey(uint8(q), pfc.Quanta(q))
			}
		}
	} else if gfc := wire.GFC(body); gfc.Valid() {
		p.obeyGently(gfc)
	}
	p.kick()
	return true
}

// obey stops a priority for some quanta, or lets it go on. The MAC that stops
// counts them in its own bit times, those of what it sends, at whatever rate the
// frame came (IEEE 802.3, annex 31B.2).
func (p *port) obey(priority uint8, quanta uint16) {
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

// pauseEnds lets priorities go on whose pause was not renewed, at the whole rate
// those whose lower one was not, tells rates again, and plans to look again when the
// next of the others is due.
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
