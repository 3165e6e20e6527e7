package plan

import (
	"slices"

	"railbed/plan/spec"
)

// Alterations has the links and ports at which steps of a file alter arrivals.
type Alterations struct {
	changed []string // patterns of links
	// senders are the ports at which faults act, and whether one of these hastens arrivals.
	senders map[End]bool
	targets map[End]bool
}

// AlteredBy returns the places at which steps of a file alter arrivals. Such steps change the settings of
// links, or are faults of packets.
func (p *Plan) AlteredBy(file *spec.Testbed) *Alterations {
	a := &Alterations{senders: map[End]bool{}, targets: map[End]bool{}}
	for _, step := range file.Steps {
		if l := step.Link; l != nil && l.Set != nil {
			pattern, _ := l.Target()
			a.changed = append(a.changed, pattern)
		}
		f := step.Fault
		if f == nil || f.OfNodes() || f.Reboot {
			continue
		}
		for _, end := range p.FaultPlaces(f) {
			a.senders[end] = a.senders[end] || f.Kind().Hastens
		}
		if f.Mirror != nil {
			if to, err := p.FaultTarget(f); err == nil { // a run refuses other targets
				a.targets[to] = true
			}
		}
	}
	return a
}

// Changes reports whether a step changes settings of a link.
func (a *Alterations) Changes(link string) bool {
	return slices.ContainsFunc(a.changed, func(pattern string) bool { return spec.Match(pattern, link) })
}

// FaultAt reports whether a fault of packets acts at a port that sends.
func (a *Alterations) FaultAt(from End) bool {
	_, acts := a.senders[from]
	return acts
}

// HastenedAt reports whether a fault at a port can make more packets arrive in a time than the port sends.
func (a *Alterations) HastenedAt(from End) bool { return a.senders[from] }

// CopiesTo reports whether copies of mirrored packets arrive at a port beside the packets of its link.
func (a *Alterations) CopiesTo(to End) bool { return a.targets[to] }
