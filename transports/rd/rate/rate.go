// Package rate decides how fast an engine of reliable datagrams may send to one of its peers. The
// engine asks a Controller before each packet and reports to it the fate of packets. Each sequence
// space has its own Controller:
//
//   - Line sets no limit: the NIC's pacer alone holds packets back.
//   - Fixed keeps to a planned rate, Phased to one rate for each phase of a plan
//     (package plan/allocation computes them).
//   - NSCC reacts to delay and to congestion marks, as the Ultra Ethernet
//     transport does.
//   - Slots sends the bytes that an arbiter granted, in the slots of the grant.
//   - Learned asks a small neural network with trained weights.
//
// Nothing here has a clock, a goroutine or a socket, and nothing is allocated for a packet. The
// same calls give the same answers. A Controller must be used by one goroutine at a time.
package rate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/clock"
)

// Controller bounds what one sequence space sends.
type Controller interface {
	// Wanted takes that so many bytes more are to go: of a message that was
	// posted.
	Wanted(now clock.Time, bytes int)
	// Sent takes that a packet with so many bytes of payload went, for the first
	// time or again.
	Sent(now clock.Time, bytes int)
	// Acked takes in what an acknowledgement tells.
	Acked(now clock.Time, a Ack)
	// Lost takes in that a packet has to be sent again.
	Lost(now clock.Time, l Loss)
	// Allowed is what may be sent now. It is asked before each packet, and again
	// after any of the other calls; who changes his mind by himself says when.
	Allowed(now clock.Time) Allowance
}

// Ack is what one acknowledgement tells.
type Ack struct {
	// Packets have come that were not known to have, with so many Bytes of
	// payload.
	Packets, Bytes int
	// Echoed is how many packets the peer counted since the acknowledgement
	// before, and Marked how many of them came with congestion experienced (RFC
	// 3168).
	Echoed, Marked int
	// Trip is the round trip of the packet that took longest among them; 0 where
	// it was not measured.
	Trip time.Duration
	// InFlight is the payload that is still under way.
	InFlight int
}

// Loss is one packet that did not come.
type Loss struct {
	Bytes    int  // of payload
	Trimmed  bool // its header came: a queue was full
	InFlight int  // payload that is still under way
}

// Allowance is what may be sent.
type Allowance struct {
	// Window is the most payload under way; 0 is no bound. One packet may always
	// be under way.
	Window int
	// Rate, in bit/s with all headers down to Ethernet's, is that of a schedule
	// that no packet runs ahead of; 0 is no bound. It comes on top of the NIC's.
	Rate uint64
	// From is when the next packet may go at the earliest; clock.Never until
	// something is told.
	From clock.Time
}

// Line is a controller without an opinion. Others embed it for what they need
// not know.
type Line struct{}

// Wanted implements Controller.
func (Line) Wanted(clock.Time, int) {}

// Sent implements Controller.
func (Line) Sent(clock.Time, int) {}

// Acked implements Controller.
func (Line) Acked(clock.Time, Ack) {}

// Lost implements Controller.
func (Line) Lost(clock.Time, Loss) {}

// Allowed implements Controller.
func (Line) Allowed(clock.Time) Allowance { return Allowance{} }

// Fixed keeps to one rate until it is told another.
type Fixed struct {
	Line
	Rate uint64 // bit/s; 0 is no bound
}

// Allowed implements Controller.
func (f *Fixed) Allowed(clock.Time) Allowance { return Allowance{Rate: f.Rate} }

// Kind is a mode of control.
type Kind uint8

// Kinds.
const (
	KindLine Kind = iota
	KindNSCC
	KindOffline
	KindArbiter
	KindLearned
)

var kindNames = []string{"line", "nscc", "offline", "arbiter", "learned"}

// String is the kind's name in the user's file.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Names are the names of all kinds, in their order.
func Names() []string { return slices.Clone(kindNames) }

// Parse is the kind of a name.
func Parse(name string) (Kind, error) {
	if i := slices.Index(kindNames, name); i >= 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("rates %q: want one of %s", name, strings.Join(kindNames, ", "))
}
