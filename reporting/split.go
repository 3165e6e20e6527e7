package reporting

import (
	"fmt"

	"railbed/capture/report"
)

// split is the table of how a training job spent its time.
type split struct {
	Groups []string
	Rows   []splitRow // the mean over all ranks, then each rank
	More   int        // ranks without a row
}

type splitRow struct {
	Name          string
	Compute, Idle float64
	Exposed       []float64 // by group
	Parts         []splitPart
}

// splitPart is a piece of a bar that is 100 wide. The rest of the bar is idle time.
type splitPart struct {
	Class    string
	X, Width float64
}

func newSplit(t *report.Training) split {
	var s split
	mean := t.Mean()
	all := splitRow{Name: "all ranks", Compute: mean.Compute, Idle: mean.Idle}
	for _, v := range volumesOf(t) {
		s.Groups = append(s.Groups, v.Group)
		all.Exposed = append(all.Exposed, v.Exposed)
	}
	s.add(all)
	for i, r := range t.PerRank {
		if i == ganttShown {
			s.More = len(t.PerRank) - i
			break
		}
		row := splitRow{Name: fmt.Sprintf("rank %d, %s", r.Rank, r.Node), Compute: r.Compute, Idle: r.Idle,
			Exposed: make([]float64, len(s.Groups))}
		for _, g := range r.Groups {
			for k, name := range s.Groups {
				if name == g.Group {
					row.Exposed[k] = g.Exposed
				}
			}
		}
		s.add(row)
	}
	return s
}

func (s *split) add(r splitRow) {
	x := 0.0
	part := func(class string, share float64) {
		r.Parts = append(r.Parts, splitPart{class, x, 100 * share})
		x += 100 * share
	}
	part(ganttCompute, r.Compute)
	for i, share := range r.Exposed {
		part(ganttClass(i), share)
	}
	s.Rows = append(s.Rows, r)
}
