package softswitch

import (
	"errors"
	"fmt"

	"railbed/fabric/softswitch/medium"
	"railbed/internal/units"
	"railbed/plan"
)

// SetLink changes a link's settings for frames that are sent from now on. If a direction's flaps
// change, they are counted from now.
//
// The buffer that the switches at its ends reserve for PFC and GFC follows the link's rates and
// delays, except for values that the file sets. If a link needs more, the reservation takes it from
// the shared buffer at once. If the shared buffer has no room, nothing changes, and the error
// contains settings that would fit. While frames, pauses and rates from before are in flight, a
// port reserves enough for both settings. So a rate that rises while a delay falls may need two
// calls, the first for the delay.
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
		if d.Flap != flap { // a new schedule starts now; an unchanged one continues
			one.medium.Begin(e.now)
		}
		one.egress.SetLink(e.now, d)
	}
	for _, one := range []*port{l.a, l.b} {
		// The durations of pauses and rates are in bit times of the link.
		one.planRefresh()
		if one.asked.gentle.slowed != 0 && rates != [2]units.Rate{aToB.Rate, bToA.Rate} {
			one.tellRates()
		}
	}
	return nil
}

// SetLinkState takes a link down or up. Frames on the link when it goes down do not arrive, and
// frames sent to it while it is down are lost. A link of a switch that reboots stays down until the
// reboot ends.
func (e *Engine) SetLinkState(name string, up bool) error {
	l := e.byLink[name]
	if l == nil {
		return fmt.Errorf("change link %s: no soft link has this name", name)
	}
	l.down = !up
	e.applyState(l)
	return nil
}

// applyState takes a link down or up, as the requests and the reboots have it.
func (e *Engine) applyState(l *link) {
	up := !l.down && l.reboots == 0
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
