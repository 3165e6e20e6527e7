package forward

import (
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// Originator is a Table that also finds the path of packets that the switch itself sends.
type Originator interface {
	// Originate sets the Ethernet addresses for the first link in a packet whose headers are
	// parsed. It returns the port by which the packet leaves, or the reason why it cannot be sent.
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
