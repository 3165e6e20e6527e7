package feed

import "slices"

// Reason is the reason why the fabric dropped, marked or trimmed a frame, or made it.
type Reason uint8

// Reasons; those of drops come first. Their names are below.
const (
	None Reason = iota
	Tail
	Buffer
	Headroom
	NICOverrun
	Express
	Loss     // A link's loss.
	Burst    // A link's gilbert-elliott.
	Nth      // A link's drop-every or drop-list.
	BitError // A link's bit-error-ratio.
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
	Aggregation // An update did not count; the table has the reason. It is the last reason of drops.
	RED         // Marked, by the queue's length.
	ECNSharp    // Marked, by the time in the queue.
	PFC         // A frame of the fabric's own.
	GFC
	Refused // It arrived, and the node's own queue had no room. This is no drop of the fabric.
)

// reasons are the names of reasons in counters, metrics and the captures' comments.
var reasons = [...]string{
	None:        "none",
	Tail:        "tail",
	Buffer:      "buffer",
	Headroom:    "headroom",
	NICOverrun:  "nic-overrun",
	Express:     "express",
	Loss:        "loss",
	Burst:       "burst",
	Nth:         "nth",
	BitError:    "bit-error",
	LinkDown:    "link-down",
	FromFault:   "fault",
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

// String returns the reason's name.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "unknown"
}

// Reasons returns the names of all reasons, by their numbers. Number 0 stands for no reason.
func Reasons() []string { return slices.Clone(reasons[:]) }

// LossReasons returns the names of the reasons for which a link loses frames while it is up, because of its
// settings: those from Loss on, up to LinkDown.
func LossReasons() []string { return slices.Clone(reasons[Loss:LinkDown]) }
