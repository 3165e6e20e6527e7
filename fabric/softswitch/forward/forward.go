// Package forward finds the port by which a packet leaves a software switch: layer 2 with learning,
// or layer 3 with equal-cost paths.
//
// It has no clock and no thread; every call is given the time. Every random choice is drawn from
// the testbed's seed and the packet's place in its flow. It is not safe for concurrent use. Only
// New allocates.
package forward

import (
	"fmt"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// Action specifies how a switch handles a packet.
type Action uint8

// Actions.
const (
	Drop  Action = iota
	Send         // by Decision.Port; Data is already rewritten
	Flood        // unchanged, by every port that is up except the ingress
	Reply        // Decision.Reply leaves by Decision.Port in place of the packet
)

// Reason is the reason why a packet was dropped, or answered instead of forwarded.
type Reason uint8

// Reasons. Counters and the capture's comments use the same names.
const (
	Forwarded Reason = iota
	NoRoute          // No route, or every port of the route is down, or no neighbour has the address.
	TTLExceeded
	Malformed
	NotForUs    // Another station's MAC address, or a group that a router does not forward to.
	TooBig      // Too long for the MTU of the egress.
	Consumed    // It was for the switch itself.
	Martian     // An address that is not valid on a link (RFC 1812, 5.3.7).
	Unsupported // Neither IP nor ARP, at a router; or in a VLAN.
	Reserved    // A group address that no bridge forwards (IEEE 802.1Q, table 8-1).
	Hairpin     // The egress equals the ingress, at a bridge.
	FloodLimit  // The ingress exceeds its limit for flooding.
	reasons     // the number of reasons
)

var names = [reasons]string{
	"forwarded", "no-route", "ttl-exceeded", "malformed", "not-for-us", "too-big", "consumed",
	"martian", "unsupported", "reserved", "hairpin", "flood-limit",
}

// String returns the reason's name.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// Decision specifies how a switch handles a packet.
type Decision struct {
	Action Action
	// Reason is Forwarded with Send and Flood, and otherwise the reason why the packet is not
	// forwarded. With Reply it is Consumed if the packet, such as an echo request, was for the
	// switch itself. Otherwise it is the reason of the drop.
	Reason Reason
	Port   int
	// Reply has parsed headers. Its Flow and Ordinal depend only on the packet's.
	Reply *packet.Packet
}

// Depths reports the bytes queued at a port, for load balancing by queue length.
type Depths interface{ Waiting(port int) int64 }

// Table makes the forwarding decisions of one switch.
type Table interface {
	// Decide decides about a packet that came in by a port, and rewrites it if the switch is a
	// router. It uses the packet's Headers and keeps them up to date. It takes a Reply from the
	// pool that the table was made with. If the pool is exhausted, the packet is dropped without an
	// answer.
	Decide(now clock.Time, one *packet.Packet, ingress int) Decision
	// SetPortUp reports to the table that the link of a port went down or up; initially all are up.
	// Paths over links that are down are not used.
	SetPortUp(port int, up bool)
}

// options are settings that a plan does not have.
type options struct {
	// FlowLabel includes the IPv6 flow label in the hash of flows (RFC 6438). A sender may change
	// the label during a connection to change its path. Linux draws it anew in every run.
	FlowLabel bool
}

// New returns the table of a switch of the plan. The switch's Forwarding selects the kind. A plan
// without routes and addresses for the switch is an error.
func New(p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (Table, error) {
	return newWith(options{}, p, sw, pool, depths)
}

// newWith is New with options.
func newWith(o options, p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (Table, error) {
	switch {
	case sw.Forwarding == spec.L2, sw.Kind == spec.Bridge:
		return newBridge(p, sw), nil
	case sw.Forwarding == spec.L3, sw.Kind == spec.Router:
		return newRouter(o, p, sw, pool, depths)
	}
	return nil, fmt.Errorf("make table of switch %s: forwarding is %q, want %s or %s", sw.Name, sw.Forwarding,
		spec.L2, spec.L3)
}
