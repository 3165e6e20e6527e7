package forward

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Originator is a Table that also finds the way of what the switch itself sends.
type Originator interface {
	// Originate gives a packet whose headers are parsed the stations' addresses
	// of its first link, and returns the port by which it leaves; or why it
	// cannot.
	Originate(now clock.Time, one *packet.Packet) (port int, why Reason)
}

// Originate implements Originator.
func (r *router) Originate(now clock.Time, one *packet.Packet) (port int, why Reason) {
	h := &one.Headers
	e := r.lookup(&h.Dst, h.Has(wire.IsIPv4)).usable()
	if e == nil || e.kind != routed {
		return 0, NoRoute
	}
	to := r.balance.choose(now, e.group, one)
	if int(h.End)-int(h.L3) > r.ports[to.port].mtu {
		return 0, TooBig
	}
	r.address(one, to)
	return to.port, Forwarded
}
