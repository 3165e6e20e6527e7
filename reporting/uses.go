package reporting

import (
	"slices"

	"railbed/capture/report"
	"railbed/plan"
)

// activeTime returns the seconds of the intervals in which some link was busier than a hundredth of its rate.
func activeTime(s *report.Series) float64 {
	used := map[int]bool{}
	for i := range s.Links {
		l := &s.Links[i]
		for at, bits := range l.Bits {
			if bits*100 > l.Asked {
				used[at] = true
			}
		}
	}
	return float64(len(used)) * s.Interval
}

// Use is the traffic of one direction of a link, for a drawing.
type Use struct {
	// Share is the part of the asked rate that was used while the run had traffic, 0 to 1. Peak is the
	// greatest share of an interval.
	Share, Peak  float64
	Drops, Marks uint64
}

// Uses returns the use of links by the name of the link, and by direction: a-to-b, then b-to-a. A link
// without traffic is absent.
func Uses(r *report.Report) map[string][2]Use {
	uses := map[string][2]Use{}
	if r.Fidelity == nil {
		return uses
	}
	seconds := 0.0
	for i := range r.Steps {
		seconds = max(seconds, r.Steps[i].End)
	}
	if r.Series != nil {
		if active := activeTime(r.Series); active > 0 {
			seconds = active
		}
	}
	for _, l := range r.Fidelity.Links {
		use := Use{Drops: max(l.Dropped, counted(l.Drops)), Marks: counted(l.Marks)}
		if l.Asked > 0 && seconds > 0 {
			asked := float64(l.Asked)
			use.Share = min(1, float64(l.Bytes)*8/seconds/asked)
			use.Peak = max(use.Share, min(1, float64(l.Peak)/asked))
		}
		both := uses[l.Link]
		both[slices.Index([]string{plan.AToB, plan.BToA}, l.Direction)&1] = use
		uses[l.Link] = both
	}
	return uses
}

// counted returns the sum of counters by reason and priority.
func counted(by map[string][8]uint64) (total uint64) {
	for _, counts := range by {
		for _, n := range counts {
			total += n
		}
	}
	return total
}
