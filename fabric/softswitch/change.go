package softswitch

import (
	"errors"
	"fmt"

	"railbed/fabric/softswitch/medium"
	"railbed/internal/units"
	"railbed/plan"
)

// SetLink changes what a link does to frames that are sent from now on. A
// direction's flaps are counted from here when they are other ones than before.
//
// What the switches at its ends keep for PFC and GFC follows its rates and delays, but
// for what the file gives. What a link needs more comes out of the shared buffer at
// once; where that has no room, nothing changes, and the error says what would fit.
// While frames, pauses and rates of before are under way, a port keeps enough for both:
// a rate that rises while a delay falls may need two calls, the delay's first.
func (e *Engine) SetLink(name string, aToB, bToA plan.Direction) error {
	l := e.byLink[name]
	if l == nil {
		return fmt.Errorf("change link %s: no soft link has this name", name)
	}
	if err := errors.Join(medium.Check(aToB), medium.Check(bToA)); err != nil {
		return fmt.Errorf("change link %s: %w", name, err)
	}
	defer e.settle()
	all, err := e.keepFor(l, aToB, bToA)
	if err != nil {
		return fmt.Errorf("change link %s: %w", name, err)
	}
	for i := range all {
		all[i].keep()
	}
	rates := [2]units.Rate{l.a.medium.Direction().Rate, l.b.medium.Direction().Rate}
	for one, d := range map[*port]plan.Direction{l.a: aToB, l.b: bToA} {
		flap := one.medium.Direction().Flap
		one.medium.Set(d)
		if d.Flap != flap { // another schedule; one that stays goes on as it was
			one.medium.Begin(e.now)
		}
		one.egress.SetLink(e.now, d)
	}
	for _, one := range []*port{l.a, l.b} {
		// The times of pauses and of rates are in bits of the link.
		one.planRefresh()
		if one.asked.gentle.slowed != 0 && rates != [2]units.Rate{aToB.Rate, bToA.Rate} {
			one.tellRates()
		}
	}
	return nil
}

// SetLinkState takes a link down or up. What is on a link when it goes down does
// not arrive, and what is sent to it meanwhile is lost.
func (e *Engine) SetLinkState(name string, up bool) error {
	l := e.byLink[name]
	if l == nil {
		return fmt.Errorf("change link %s: no soft link has this name", name)
	}
	e.setState(l, up)
	return nil
}

func (e *Engine) setState(l *link, up bool) {
	if l.up == up {
		return
	}
	l.up = up
	l.epoch++
	for _, one := range []*port{l.a, l.b} {
		if one.station.table != nil {
			one.station.table.SetPortUp(one.number, up)
		}
		if up {
			one.tellRates()
		}
		one.kick()
	}
	e.settle()
}
