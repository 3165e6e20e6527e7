package report

import (
	"slices"

	"railbed/plan"
)

// Charts are the data of the page's charts. Data that the run could not find out is absent.
type Charts struct {
	Series        *Series        `json:"series,omitempty"`
	Activities    []Activity     `json:"activities,omitempty"`
	Distributions []Distribution `json:"distributions,omitempty"`
}

// Series are the time lines of a run: values of links in equal intervals. Seconds count from the start of the
// first step.
type Series struct {
	// Source is "counters", or the path of the recording that was read, below the report's directory.
	Source string `json:"source"`
	// Start is the begin of the first interval, and Interval the length of each, in seconds.
	Start    float64 `json:"start"`
	Interval float64 `json:"interval"` // between two values
	// Links are the directions of links that carried most for their rate, the busiest first. LeftOut counts
	// the directions that are left out.
	Links   []LinkSeries `json:"links"`
	LeftOut int          `json:"left_out,omitempty"`
}

// CountersSource is the source of time lines that were made from the links' counters.
const CountersSource = "counters"

// Bounds of time lines. A longer run has longer intervals.
const (
	SeriesPoints = 200
	SeriesLinks  = 64
)

// LinkSeries are the time lines of a direction of a link. A list has a value for each interval, and is absent
// if all values are 0.
type LinkSeries struct {
	From  string   `json:"from"`            // "leaf0:p3"
	To    string   `json:"to"`              // the port that receives
	Asked uint64   `json:"asked_bit_s"`     // rate of the plan
	Bits  []uint64 `json:"bit_s,omitempty"` // the rate in each interval
	// Depth is the greatest number of bytes seen in the queue of the sending port.
	Depth []uint64 `json:"depth,omitempty"`
	// Pauses are the pause frames that arrived at the sending port. Marks and Drops count packets at that
	// port.
	Pauses []uint64 `json:"pauses,omitempty"`
	Marks  []uint64 `json:"marks,omitempty"`
	Drops  []uint64 `json:"drops,omitempty"`
	// Again are the packets that the port of a node sent again. Only a recording shows them.
	Again []uint64 `json:"sent_again,omitempty"`
}

// end returns the end of the last interval.
func (s *Series) end() float64 {
	points := 0
	for i := range s.Links {
		for _, values := range s.Links[i].lists() {
			points = max(points, len(values))
		}
	}
	return s.Start + float64(points)*s.Interval
}

func (l *LinkSeries) lists() [][]uint64 {
	return [][]uint64{l.Bits, l.Depth, l.Pauses, l.Marks, l.Drops, l.Again}
}

// active returns the seconds of the intervals in which some link was busier than a hundredth of its rate.
func (s *Series) active() float64 {
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
func (r *Report) Uses() map[string][2]Use {
	uses := map[string][2]Use{}
	if r.Fidelity == nil {
		return uses
	}
	seconds := 0.0
	for i := range r.Steps {
		seconds = max(seconds, r.Steps[i].End)
	}
	if r.Series != nil {
		if active := r.Series.active(); active > 0 {
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
