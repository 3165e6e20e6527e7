package plan

import (
	"slices"

	"railbed/plan/spec"
)

// AltersArrivals reports whether packets can arrive at other times, in other numbers or of another size than
// they left, apart from a constant delay. A setting that is not named here does.
func (d Direction) AltersArrivals() bool {
	d.Rate, d.Delay, d.Queue, d.Overhead = 0, 0, 0, 0
	d.JitterKind, d.ReorderBy = "", 0 // mean nothing without jitter and reorder
	return !d.Equal(Direction{})
}

// AlteredBy returns a function that reports whether steps of a file alter the arrivals of a direction of a
// link. Such steps change the link's settings, or are faults of packets at the sending port. Copies of
// mirrored packets arrive at their target beside the packets of its link.
func (p *Plan) AlteredBy(file *spec.Testbed) func(link string, from, to End) bool {
	var changed []string
	senders, targets := map[End]bool{}, map[End]bool{}
	for _, step := range file.Steps {
		if l := step.Link; l != nil && l.Set != nil {
			pattern, _ := l.Target()
			changed = append(changed, pattern)
		}
		f := step.Fault
		if f == nil || f.OfNodes() || f.Reboot {
			continue
		}
		for _, end := range p.FaultPlaces(f) {
			senders[end] = true
		}
		if f.Mirror != nil {
			if to, err := p.FaultTarget(f); err == nil { // a run refuses other targets
				targets[to] = true
			}
		}
	}
	return func(link string, from, to End) bool {
		return senders[from] || targets[to] || slices.ContainsFunc(changed, func(pattern string) bool {
			return spec.Match(pattern, link)
		})
	}
}
