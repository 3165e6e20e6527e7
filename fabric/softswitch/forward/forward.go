// Package forward is how a software switch finds the port by which a packet
// leaves: layer 2 with learning, or layer 3 with equal-cost paths.
//
// It is pure: no clock, no thread; every call is given the time. It is not safe
// for concurrent use.
package forward

import (
	"railbed/fabric/clock"
	"railbed/fabric/softswitch/packet"
	"railbed/testbed/plan"
)

// Action is what a switch does with a packet.
type Action uint8

// Actions.
const (
	Drop  Action = iota
	Send         // by Decision.Port; Data is already rewritten
	Flood        // by every port but the ingress, as it is
	Reply        // Decision.Reply leaves by Decision.Port in place of the packet
)

// Reason says why a packet was dropped.
type Reason uint8

// Reasons. The names are those of counters and of the capture's comments.
const (
	Forwarded Reason = iota
	NoRoute
	TTLExceeded
	Malformed
	NotForUs // another station's MAC address
	TooBig
	Consumed // it was for the switch itself, and wants no answer
)

// Decision is what is to happen to a packet.
type Decision struct {
	Action Action
	Reason Reason
	Port   int
	Reply  *packet.Packet
}

// Depths tells how many bytes wait at a port, for load balancing by queue.
type Depths interface{ Waiting(port int) int64 }

// Table decides for one switch.
type Table interface {
	// Decide finds out what happens to a packet that came in by a port, and
	// rewrites it as a router does. A Reply is taken from the pool that the table
	// was made with.
	Decide(now clock.Time, one *packet.Packet, ingress int) Decision
}

// New returns the table of a switch of the plan.
func New(p *plan.Plan, sw *plan.Switch, pool *packet.Pool, depths Depths) (Table, error) {
	return nil, nil
}
