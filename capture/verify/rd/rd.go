// Package rd has the checks of reliable datagrams (transports/rd/PROTOCOL.md). Every message is placed
// exactly once, and no packet is sent again without need. Packets keep to the schedule of their rate.
package rd

import (
	"fmt"

	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
)

// New makes the check of a statement about reliable datagrams (spec.ThatRDPlaced and so on).
func New(that string) (evidence.Check, error) {
	switch that {
	case spec.ThatRDPlaced:
		return newPlaced(), nil
	case spec.ThatRDNeeded:
		return newNeeded(), nil
	}
	return nil, fmt.Errorf("check of packets: unknown statement %q", that)
}

// Timed reports whether a statement depends on the sender's timers.
func Timed(that string) bool { return that == spec.ThatRDNeeded }
