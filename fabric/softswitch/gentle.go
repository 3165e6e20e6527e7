package softswitch

import (
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Gentle Flow Control between ports. The buffer signals each change once, and messages can get
// lost, on links with faults or when a link goes down. No sender stays slow for good because of a
// lost message: a rate below the line's expires after rateQuanta, like the longest pause. No rate
// rises by mistake, because it is repeated before it expires.
//
// After a change the rate is repeated after one interval of repeatQuanta, then after two, four and
// eight. While a rate is reduced, the repetitions continue every eight intervals, an eighth of the
// time for which a rate holds: six messages in a row may be lost. Otherwise they end after repeats
// repetitions, and an idle port sends none. When a link comes up, everything is sent as after a
// change.
//
// The shortest interval is the time of 65,536 bytes, in which InfiniBand sends credits and
// time-based GFC reports anyway. The frames of the longest interval take a hundredth of a percent
// of the line.
const (
	rateQuanta   = 65535
	repeatQuanta = 1024
	repeats      = 3
)

// gentle is the state of a port's GFC messages to its far end.
type gentle struct {
	// fields are the current values of all priorities that were ever signalled.
	fields wire.GFCFields
	slowed uint8 // priorities whose rate is below the line's, a bit each
	say    bool  // a message is due
	said   uint8 // messages since the last change, at most repeats
	// again is when a message is due next; 0 is never.
	again clock.Time
}

// Stage implements queue.Signals.
func (s *station) Stage(ingress int, priority, stage uint8) {
	s.ports[ingress].slow(priority, uint16(stage), false)
}

// Rate implements queue.RateSignals.
func (s *station) Rate(ingress int, priority uint8, share uint16) {
	s.ports[ingress].slow(priority, share, true)
}

// slow signals the rate of a priority to the far end.
func (p *port) slow(priority uint8, value uint16, share bool) {
	g, bit := &p.asked.gentle, uint8(1)<<priority
	if g.fields.Enable&bit == 0 || g.fields.Values[priority] != value {
		g.said = 0
	}
	g.fields.Enable |= bit
	g.fields.Values[priority], g.fields.Share = value, share
	g.slowed &^= bit
	if share && value < queue.FullRate || !share && value > 0 {
		g.slowed |= bit
	}
	g.say = true
	p.engine.signal(p)
}

// ReportAt implements queue.Signals.
func (s *station) ReportAt(at clock.Time) {
	s.engine.events.push(event{at: at, kind: reports, port: int32(s.ports[0].index)})
}

// tellRates signals all rates to the far end again, because the link came up or its rate changed.
func (p *port) tellRates() {
	if g := &p.asked.gentle; g.fields.Enable != 0 {
		g.say, g.said = true, 0
		p.engine.signal(p)
	}
}

// planRepeat plans when to repeat the message that was sent now.
func (p *port) planRepeat() {
	e, g := p.engine, &p.asked.gentle
	g.say, g.again = false, 0
	if g.slowed == 0 && g.said == repeats {
		return
	}
	g.again = e.now.Add(p.pauseTime(repeatQuanta << g.said))
	g.said = min(g.said+1, repeats)
	e.events.alarm(g.again, int32(p.index))
}

// repeatRates repeats the current rates to the far end if that is due, and returns when it is due
// next. A link that is down carries nothing; the rates are sent when it comes up.
func (p *port) repeatRates() (next clock.Time) {
	g := &p.asked.gentle
	switch {
	case g.again == 0:
		return clock.Never
	case g.again > p.engine.now:
		return g.again
	}
	g.again, g.say = 0, g.say || p.link.up
	return clock.Never
}

// honourGFC applies the rates that a GFC message requests.
func (p *port) honourGFC(g wire.GFC) {
	e := p.engine
	for q := range uint8(queue.Priorities) {
		switch {
		case g.Enable()>>q&1 == 0:
			continue
		case g.Share():
			p.egress.Share(e.now, q, g.Value(int(q)))
		default:
			p.egress.Stage(e.now, q, uint8(min(g.Value(int(q)), 255)))
		}
		p.slowed[q] = 0
		if p.egress.Rate(q) > 0 {
			p.slowed[q] = e.now.Add(p.far.pauseTime(rateQuanta))
			e.events.alarm(p.slowed[q], int32(p.index))
		}
	}
}

// forget restores the line's rate for priorities whose lower rate was not repeated. It returns when
// the next of the others expires.
func (p *port) forget() (next clock.Time) {
	next = clock.Never
	for q := range uint8(queue.Priorities) {
		switch until := p.slowed[q]; {
		case until == 0:
		case until <= p.engine.now:
			p.slowed[q] = 0
			p.egress.Stage(p.engine.now, q, 0)
		default:
			next = min(next, until)
		}
	}
	return next
}
