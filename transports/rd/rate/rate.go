// Package rate decides how fast an engine of reliable datagrams may send to one of its peers. The
// engine calls a Controller before each packet and reports the fate of packets to it. Each sequence
// space has its own Controller:
//
//   - Line sets no limit: the NIC's pacer alone holds packets back.
//   - Fixed keeps to a planned rate, Phased to one rate for each phase of a plan
//     (package plan/allocation computes them).
//   - NSCC reacts to delay and to congestion marks, as the Ultra Ethernet
//     transport does.
//   - Slots sends the bytes that an arbiter granted, in the slots of the grant.
//   - Learned evaluates a small neural network with trained weights.
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

// Controller bounds the sending of one sequence space.
type Controller interface {
	// Wanted records that a message was posted, with bytes to send.
	Wanted(now clock.Time, bytes int)
	// Sent records that a packet with a number of payload bytes was sent, for the first time or
	// again.
	Sent(now clock.Time, bytes int)
	// Acked processes the contents of an acknowledgement.
	Acked(now clock.Time, a Ack)
	// Lost records that a packet must be sent again.
	Lost(now clock.Time, l Loss)
	// Allowed returns the bounds that apply now. The engine calls it before each packet, and again
	// after any of the other calls. A controller whose answer changes with time alone returns that
	// time in From.
	Allowed(now clock.Time) Allowance
}

// Ack holds the contents of one acknowledgement.
type Ack struct {
	// Packets and Bytes count the newly acknowledged packets and their payload.
	Packets, Bytes int
	// Echoed is the number of packets that the peer counted since the previous acknowledgement.
	// Marked is the number of these that arrived with congestion experienced (RFC 3168).
	Echoed, Marked int
	// Trip is the longest round trip among those packets; 0 where it was not measured.
	Trip time.Duration
	// InFlight is the payload still in flight, in bytes.
	InFlight int
}

// Loss is one packet that was not received.
type Loss struct {
	Bytes    int  // of payload
	Trimmed  bool // its header arrived: a queue was full
	InFlight int  // payload still in flight, in bytes
}

// Allowance bounds the sending of a sequence space.
type Allowance struct {
	// Window is the largest payload in flight, in bytes; 0 is no bound. One packet may always be in
	// flight.
	Window int
	// Rate, in bit/s with all headers down to Ethernet's, paces packets: none is sent before its
	// scheduled time. 0 is no bound. The NIC's own rate applies in addition.
	Rate uint64
	// From is the earliest time of the next packet. clock.Never stands for no time until another
	// call changes it.
	From clock.Time
}

// Line is a controller without limits. Other controllers embed it for calls that they ignore.
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

// Fixed keeps to one rate until its owner changes it.
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

// String returns the kind's name in the user's file.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Parse returns the kind with a name.
func Parse(name string) (Kind, error) {
	if i := slices.Index(kindNames, name); i >= 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("control %q: want one of %s", name, strings.Join(kindNames, ", "))
}
