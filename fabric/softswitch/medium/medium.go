// Package medium is one direction of an emulated link: how long a frame takes
// to be sent and to arrive, and what happens to it on the way.
//
// Every random draw is a pure function of the seed, the link, the direction,
// the flow's key and the packet's index in its flow, so that a flow that sends
// the same packets meets the same faults. The package is pure, and not safe for
// concurrent use.
package medium

import (
	"time"

	"railbed/fabric/clock"
	"railbed/fabric/softswitch/packet"
	"railbed/testbed/plan"
)

// Reason says why a packet did not arrive.
type Reason uint8

// Reasons. The names are those of counters and of the capture's comments.
const (
	Arrives Reason = iota
	Loss           // uniform
	Burst          // Gilbert-Elliott
	Nth            // drop-every, drop-list
	LinkDown
)

// Transit is what happens to a packet on the way.
type Transit struct {
	Reason Reason // Arrives, or why it does not
	// At is when it arrives; Again, unless it is clock.Never, when its
	// duplicate does.
	At, Again clock.Time
	// Corrupt is the bit of the frame that is flipped, or -1.
	Corrupt int
}

// Medium is one direction of a link.
type Medium struct {
	direction plan.Direction
	seed      uint64
	remainder uint64
}

// New returns the direction of a link; seed is of the testbed, link and
// direction.
func New(d plan.Direction, seed uint64) *Medium { return &Medium{direction: d, seed: seed} }

// Set changes what the direction does to packets that are sent from now on.
func (m *Medium) Set(d plan.Direction) { m.direction = d }

// Direction is what the medium was last set to.
func (m *Medium) Direction() plan.Direction { return m.direction }

// Serialise is how long a frame of some bytes occupies the link. The fractions
// of nanoseconds add up and are never lost.
func (m *Medium) Serialise(bytes int) time.Duration {
	rate := uint64(m.direction.Rate)
	if rate == 0 {
		return 0
	}
	units := uint64(bytes)*8*uint64(time.Second) + m.remainder
	m.remainder = units % rate
	return time.Duration(units / rate)
}

// Send is the fate of a packet whose last bit leaves at sent.
func (m *Medium) Send(sent clock.Time, one *packet.Packet) Transit {
	return Transit{At: sent.Add(time.Duration(m.direction.Delay)), Again: clock.Never, Corrupt: -1}
}
