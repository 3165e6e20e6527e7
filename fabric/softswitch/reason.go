package softswitch

import (
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/feed"
)

// Reason is the reason why the fabric dropped, marked or trimmed a packet, or made it.
type Reason uint8

// Reasons; those of drops come first.
const (
	None Reason = iota
	Tail
	Buffer
	Headroom
	NICOverrun
	Express
	Loss
	Burst
	Nth
	LinkDown
	FromFault
	NoRoute
	TTLExceeded
	Malformed
	NotForUs
	TooBig
	Martian
	Unsupported
	Reserved
	Hairpin
	FloodLimit
	Memory      // A copy found no packet memory.
	Aggregation // An update did not count; the table has the reason.
	RED         // Marked, by the queue's length.
	ECNSharp    // Marked, by the time in the queue.
	PFC         // A frame of the fabric's own.
	GFC
	Refused // It arrived, and the node's own queue had no room. This is no drop of the fabric.
	reasons // the number of reasons
)

// names are used by counters, metrics and the capture's comments. The constants are in their order.
var names = feed.Reasons()

// String returns the reason's name.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// ReasonNames returns the names of all reasons, by their number.
func ReasonNames() []string { return names }

// Reasons returns all reasons of drops, for lists of counters.
func Reasons() []Reason {
	all := make([]Reason, 0, Aggregation)
	for r := None + 1; r <= Aggregation; r++ {
		all = append(all, r)
	}
	return all
}

// Recorded returns the names of the drop reasons that captures show. These are all except the
// reason of a copy that found no packet memory, plus Refused, a drop by a node's own queue.
func Recorded() []string {
	var words []string
	for _, r := range append(Reasons(), Refused) {
		if r != Memory {
			words = append(words, r.String())
		}
	}
	return words
}

var ofQueue = [...]Reason{
	queue.Tail: Tail, queue.Buffer: Buffer, queue.Headroom: Headroom, queue.NICOverrun: NICOverrun,
	queue.Express: Express,
}

var ofMedium = [...]Reason{
	medium.Loss: Loss, medium.Burst: Burst, medium.Nth: Nth, medium.LinkDown: LinkDown,
}

var ofForward = [...]Reason{
	forward.NoRoute: NoRoute, forward.TTLExceeded: TTLExceeded, forward.Malformed: Malformed,
	forward.NotForUs: NotForUs, forward.TooBig: TooBig, forward.Martian: Martian,
	forward.Unsupported: Unsupported,
	forward.Reserved:    Reserved, forward.Hairpin: Hairpin, forward.FloodLimit: FloodLimit,
}
