// Package rdchecks has the checks of reliable datagrams (transports/rd/PROTOCOL.md). Every message is placed
// exactly once, and no packet is sent again without need. Packets keep to the schedule of their rate.
package rdchecks

import (
	"fmt"
	"strconv"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
)

var _ = evidence.Register(evidence.Kind{Key: "that", Example: strconv.Quote(spec.ThatRDPlaced),
	Timed:      func(p *spec.PacketsCheck) bool { return p.That == spec.ThatRDNeeded },
	Conditions: conditions.Conditions{Packets: conditions.RD, Examine: thatConditions},
	Make: func(p *spec.PacketsCheck, _ evidence.Sources) (evidence.Check, error) {
		return New(p.That)
	}})

func thatConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	l.Encrypted(path, l.Never)
	l.Named(path, p)
}

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
