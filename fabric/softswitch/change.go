package softswitch

import (
	"fmt"

	"railbed/testbed/plan"
)

// SetLink changes what a link does to frames that are sent from now on. A
// direction's flaps are counted from here when they are other ones than before.
//
// What the switches at its ends keep for PFC follows its rates and delays, but for
// what the file gives. What a link needs more comes out of the shared buffer at
// once; where that has no room, nothing changes, and the error says what would fit.
// While frames and pauses of before are under way, a port keeps enough for both: a
// rate that rises while a delay falls may need two calls, the delay's first.
func (e *Engine) SetLink(name string, aToB, bToA plan.Direction) error {
	l := e.byLink[name]
	if l == nil {
		return fmt.Errorf("change link %s: no soft link has this name", name)
	}
	defer e.settle()
	err := l.a.keepFor(plan.Hop{MTU: l.plan.MTU, In: bToA, Out: aToB})
	if err == nil { // if B refuses, A keeps more for a while, as after a change that was undone
		err = l.b.keepFor(plan.Hop{MTU: l.plan.MTU, In: aToB, Out: bToA})
	}
	if err != nil {
		return fmt.Errorf("change link %s: %w", name, err)
	}
	for one, d := range map[*port]plan.Direction{l.a: aToB, l.b: bToA} {
		flap := one.medium.Direction().Flap
		one.medium.Set(d)
		if d.Flap != flap { // another schedule; one that stays goes on as it was
			one.medium.Begin(e.now)
		}
		one.egress.SetLink(e.now, d)
	}
	for _, one := range []*port{l.a, l.b} {
		one.planRefresh() // the time of a pause is in bits of the link
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
