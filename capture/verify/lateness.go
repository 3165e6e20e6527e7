package verify

import (
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/plan"
)

// lateness counts the frames that ports of soft switches sent, by the lateness that the switches recorded.
// Effects of faults and settings are no lateness: a frame that a fault delays is due later.
type lateness struct {
	// limits are the limits of all links of the plan in real time, the least first. Which of them counts is
	// known at the end, from the links that carried something.
	limits []time.Duration
	later  []uint64 // frames that were later, by limit
	frames uint64
}

// newLateness makes the counters for the links of a plan.
func newLateness(c *evidence.Capture) (l lateness) {
	if c.Plan == nil {
		return l
	}
	for i := range c.Plan.Links {
		link := &c.Plan.Links[i]
		for _, d := range []plan.Direction{link.AToB, link.BToA} {
			if smallest := d.Smallest(link.MTU); smallest > 0 {
				l.limits = append(l.limits, LateLimit(smallest)*time.Duration(c.Dilation))
			}
		}
	}
	slices.Sort(l.limits)
	l.limits = slices.Compact(l.limits)
	l.later = make([]uint64, len(l.limits))
	return l
}

// add counts a frame that leaves a port of a soft switch.
func (l *lateness) add(late time.Duration) {
	l.frames++
	for i, limit := range l.limits {
		if late <= limit {
			return
		}
		l.later[i]++
	}
}

// beyond returns the share of the frames that were later than a limit.
func (l *lateness) beyond(limit time.Duration) float64 {
	i, known := slices.BinarySearch(l.limits, limit)
	if !known || l.frames == 0 {
		return 0
	}
	return float64(l.later[i]) / float64(l.frames)
}

// smallest returns the smallest time of the links that carried packets, in the testbed's time.
func (k *Fidelity) smallest() (least time.Duration) {
	p := k.capture.Plan
	for i := range p.Links {
		link := &p.Links[i]
		for _, atA := range []bool{true, false} {
			if m, _ := k.measure(link, atA); m.meter == nil {
				continue
			}
			d := link.Direction(atA).Smallest(link.MTU)
			if d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}
