package softswitch

import (
	"fmt"
	"time"

	"railbed/fabric/clock"
	"railbed/fabric/units"
	"railbed/testbed/plan"
)

// hop is the port's link as it is now.
func (p *port) hop() plan.Hop {
	return plan.Hop{MTU: p.link.plan.MTU, In: p.far.medium.Direction(), Out: p.medium.Direction()}
}

// keepFor has the port keep for PFC what its link needs that becomes another one.
// Frames are under way that were sent at the old rate and take the old delay, and so
// are pauses: as long as that can matter, the port keeps enough for both.
func (p *port) keepFor(hop plan.Hop) error {
	if p.pfc == nil || hop.Alike(p.hop()) {
		return nil
	}
	at, settled := p.worst.During(hop, p.thresholds(), max(p.free.Sub(p.engine.now), 0))
	if !p.station.memory.SetPFC(p.number, at) {
		return p.noRoom(hop, at)
	}
	p.worst, p.own = p.worst.Worse(hop), hop.PFC(*p.pfc)
	p.shrinkAt(p.engine.now.Add(settled))
	return nil
}

// shrinkAt plans when to keep less again.
func (p *port) shrinkAt(at clock.Time) {
	p.shrinks = max(p.shrinks, at)
	p.engine.events.push(event{at: p.shrinks, kind: shrinks, port: int32(p.index)})
}

// shrink has the port keep no more than its link needs now, once no more waits.
func (p *port) shrink() {
	e := p.engine
	if e.now < p.shrinks { // the link has changed again
		return
	}
	if p.station.memory.Shrink(p.number, p.own) {
		p.worst = p.hop()
	} else {
		p.shrinkAt(e.now.Add(patience))
	}
}

// patience is the time between two looks whether a queue has become shorter.
const patience = time.Millisecond

// noRoom is the error for a link that needs more than there is.
func (p *port) noRoom(hop plan.Hop, at plan.PortPFC) error {
	own, have := hop.PFC(*p.pfc), units.Bytes(p.station.memory.MostPFC(p.number))
	fits := "no delay is short enough at these rates"
	if delay := hop.MostDelay(*p.pfc, have); own.XOff+own.Headroom <= have {
		fits = "what is under way at the old rates and delays needs most of it: change what the port sends first, and the delays before the rates"
	} else if delay >= 0 {
		fits = fmt.Sprintf("at these rates delays of %v fit, both directions together", delay)
	}
	return fmt.Errorf("keep headroom for PFC at %s: want %s of the switch's buffer for each lossless priority, have %s: %s", p.name, at.XOff+at.Headroom, have, fits)
}

// thresholds are PFC's at the port, as they are in force; zero without.
func (p *port) thresholds() plan.PortPFC {
	if p.pfc == nil {
		return plan.PortPFC{}
	}
	return p.station.memory.PFC(p.number)
}
