// Package forward is how a software switch finds the port by which a packet
// leaves: layer 2 with learning, or layer 3 with equal-cost paths.
//
// It is pure: no clock, no thread; every call is given the time, and every
// random choice is drawn from the testbed's seed and the packet's place in its
// flow. It is not safe for concurrent use. No call but New allocates.
package forward

import (
	"fmt"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// Action is what a switch does with a packet.
type Action uint8

// Actions.
const (
	Drop  Action = iota
	Send         // by Decision.Port; Data is already rewritten
	Flood        // by every port that is up but the ingress, as it is
	Reply        // Decision.Reply leaves by Decision.Port in place of the packet
)

// Reason says why a packet was dropped, or answered in place of being sent on.
type Reason uint8

// Reasons. The names are those of counters and of the capture's comments.
const (
	Forwarded Reason = iota
	NoRoute          // none, or every port of the route is down, or no neighbour has the address
	TTLExceeded
	Malformed
	NotForUs    // another station's MAC address, or a group that a router does not forward to
	TooBig      // for the MTU of the egress
	Consumed    // it was for the switch itself
	Martian     // an address that has no business on a link (RFC 1812, 5.3.7)
	Unsupported // neither IP nor ARP, at a router; or in a VLAN
	Reserved    // a group address that no bridge forwards (IEEE 802.1Q, table 8-1)
	Hairpin     // its way out is where it came from, at a bridge
	FloodLimit  // the ingress floods more than it may
	reasons     // how many there are
)

var names = [reasons]string{
	"forwarded", "no-route", "ttl-exceeded", "malformed", "not-for-us", "too-big", "consumed",
	"martian", "unsupported", "reserved", "hairpin", "flood-limit",
}

// String is the reason's name.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// Decision is what is to happen to a packet.
type Decision struct {
	Action Action
	// Reason is Forwarded with Send and Flood, and why not otherwise. With Reply
	// it is Consumed where the packet was for the switch itself, an echo request
	// for example, and else why it was dropped.
	Reason Reason
	Port   int
	// Reply has its headers parsed, and a Flow and Ordinal that depend on the
	// packet's alone.
	Reply *packet.Packet
}

// Depths tells how many bytes wait at a port, for load balancing by queue.
type Depths interface{ Waiting(port int) int64 }

// Table decides for one switch.
type Table interface {
	// Decide finds out what happens to a packet that came in by a port, and
	// rewrites it as a router does. It goes by the packet's Headers and keeps
	// them true. A Reply is taken from the pool that the table was made with;
	// where the pool is used up, the packet is dropped without an answer.
	Decide(now clock.Time, one *packet.Packet, ingress int) Decision
	// SetPortUp says that the link of a port went down or up; all are up at
	// first. Paths over links that are down are none.
	SetPortUp(port int, up bool)
}

// Options are choices that a plan does not have.
type Options struct {
	// FlowLabel has the IPv6 flow label in the hash of flows (RFC 6438). A
	// sender may change it during a connection, so that it changes its path, and
	// Linux draws it anew in every run.
	FlowLabel bool
}

// New returns the table of a switch of the plan. The switch's Forwarding says
// which; a plan without routes and addresses for it is an error.
func New(p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (Table, error) {
	return NewWith(Options{}, p, sw, pool, depths)
}

// NewWith is New with options.
func NewWith(o Options, p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (Table, error) {
	switch {
	case sw.Forwarding == spec.L2, sw.Kind == spec.Bridge:
		return newBridge(p, sw), nil
	case sw.Forwarding == spec.L3, sw.Kind == spec.Router:
		return newRouter(o, p, sw, pool, depths)
	}
	return nil, fmt.Errorf("make table of switch %s: forwarding is %q, want %s or %s", sw.Name, sw.Forwarding,
		spec.L2, spec.L3)
}
