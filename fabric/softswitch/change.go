package softswitch

import (
	"fmt"

	"railbed/testbed/plan"
)

// SetLink changes what a link does to frames that are sent from now on.
func (e *Engine) SetLink(name string, aToB, bToA plan.Direction) error {
	l := e.byLink[name]
	if l == nil {
		return fmt.Errorf("change link %s: no soft link has this name", name)
	}
	for one, d := range map[*port]plan.Direction{l.a: aToB, l.b: bToA} {
		one.medium.Set(d)
		one.medium.Begin(e.now)
		one.egress.SetLink(e.now, d)
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
		one.kick()
	}
	e.settle()
}
