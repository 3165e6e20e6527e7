package softswitch

import (
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/feed"
)

// Reason is the reason why the fabric dropped, marked or trimmed a packet, or made it.
type Reason = feed.Reason

// The reasons that this package gives. Those of links come from package medium.
const (
	None        = feed.None
	Tail        = feed.Tail
	Buffer      = feed.Buffer
	Headroom    = feed.Headroom
	NICOverrun  = feed.NICOverrun
	Express     = feed.Express
	Loss        = feed.Loss
	Burst       = feed.Burst
	Nth         = feed.Nth
	LinkDown    = feed.LinkDown
	FromFault   = feed.FromFault
	NoRoute     = feed.NoRoute
	TTLExceeded = feed.TTLExceeded
	Malformed   = feed.Malformed
	NotForUs    = feed.NotForUs
	TooBig      = feed.TooBig
	Martian     = feed.Martian
	Unsupported = feed.Unsupported
	Reserved    = feed.Reserved
	Hairpin     = feed.Hairpin
	FloodLimit  = feed.FloodLimit
	Memory      = feed.Memory
	Aggregation = feed.Aggregation
	RED         = feed.RED
	ECNSharp    = feed.ECNSharp
	PFC         = feed.PFC
	GFC         = feed.GFC
	Refused     = feed.Refused
)

// ReasonNames returns the names of all reasons, by their number.
func ReasonNames() []string { return feed.Reasons() }

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

var ofForward = [...]Reason{
	forward.NoRoute: NoRoute, forward.TTLExceeded: TTLExceeded, forward.Malformed: Malformed,
	forward.NotForUs: NotForUs, forward.TooBig: TooBig, forward.Martian: Martian,
	forward.Unsupported: Unsupported,
	forward.Reserved:    Reserved, forward.Hairpin: Hairpin, forward.FloodLimit: FloodLimit,
}
