package softswitch

import (
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/queue"
)

// Reason says why the fabric did something to a packet.
type Reason uint8

// Reasons, first those of drops.
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
	Memory      // a copy that found no packet memory
	Aggregation // no update that counts; the table says why
	RED         // marked, by the queue's length
	ECNSharp    // marked, by the time in the queue
	PFC         // a frame of the fabric's own
	GFC
	Refused // arrived, and the node's own queue had no room: no drop of the fabric
	reasons // how many there are
)

// names are those of counters, of metrics and of the capture's comments.
var names = [reasons]string{
	None:       "none",
	Tail:       "tail",
	Buffer:     "buffer",
	Headroom:   "headroom",
	NICOverrun: "nic-overrun",
	Express:    "express",
	Loss:       "loss", Burst: "burst", Nth: "nth", LinkDown: "link-down",
	NoRoute:     "no-route",
	TTLExceeded: "ttl-exceeded",
	Malformed:   "malformed",
	NotForUs:    "not-for-us",
	TooBig:      "too-big",
	Martian:     "martian",
	Unsupported: "unsupported",
	Reserved:    "reserved",
	Hairpin:     "hairpin",
	FloodLimit:  "flood-limit",
	Memory:      "memory",
	Aggregation: "aggregation",
	RED:         "red",
	ECNSharp:    "ecn-sharp",
	PFC:         "pfc",
	GFC:         "gfc",
	Refused:     "refused",
}

// String is the reason's name.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// ReasonNames are the names of all reasons, by their number.
func ReasonNames() []string { return names[:] }

// Reasons are all reasons of drops, for whoever lists counters.
func Reasons() []Reason {
	all := make([]Reason, 0, Aggregation)
	for r := None + 1; r <= Aggregation; r++ {
		all = append(all, r)
	}
	return all
}

// Recorded are the reasons of drops that captures show, in words: all but that of a copy
// for which there was no packet, and that of a node's own queue besides.
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
