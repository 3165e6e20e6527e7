package report

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Learning holds the losses and the accuracy of a workload of kind sgd, which trains a real model.
type Learning struct {
	// Loss is the loss by iteration, in nats, over the training samples.
	Loss []float64 `json:"loss"`
	// Held is the loss and Accuracy the share of correct answers, both at the end, over samples
	// that no rank trained on.
	Held     float64 `json:"held_out_loss"`
	Accuracy float64 `json:"held_out_accuracy"`
	// Clipped is the number of gradient elements that were too large to be encrypted unchanged.
	Clipped uint64 `json:"clipped,omitempty"`
}

// learned prints a line for each training with gradients.
func (t *textWriter) learned(workloads []Workload) {
	rows := newRows("learned", "iterations", "loss\nfirst", "loss\nlast", "loss\nheld out",
		"accuracy\nheld out", "elements\nclipped")
	rightAligned(rows, 2, 3, 4, 5, 6, 7)
	for _, w := range workloads {
		if l := w.Learning; l != nil && len(l.Loss) > 0 {
			rows.AppendRow(table.Row{w.Name, len(l.Loss), loss(l.Loss[0]), loss(l.Loss[len(l.Loss)-1]),
				loss(l.Held), percent(l.Accuracy), l.Clipped})
		}
	}
	if rows.Length() > 0 {
		t.table(rows)
	}
}

func loss(nats float64) string { return fmt.Sprintf("%.4f", nats) }

// curves is a chart of losses by iteration, in units of its view box. It has a line for each
// training. The trainings' names are at the right, below each other in the order of the workloads.
type curves struct {
	Width, Height float64
	Lines         []curve
	Levels        []level
}

type curve struct {
	Name, Points string
	Dashes       string // the line's dash pattern, since all lines have one colour
	X, Y         float64
}

type level struct {
	Y    float64
	Text string
}

// Sizes of the chart.
const (
	curvesWide, curvesHigh = 1000, 240
	curvesNames            = 160 // width for the names, at the right
	curvesLabel            = 16  // from one name to the next
)

// newCurves draws the chart. It has no lines if no workload trained.
func newCurves(workloads []Workload) curves {
	c := curves{Width: curvesWide, Height: curvesHigh}
	var most float64
	longest := 0
	for _, w := range workloads {
		if w.Learning != nil {
			for _, v := range w.Learning.Loss {
				most = max(most, v)
			}
			longest = max(longest, len(w.Learning.Loss))
		}
	}
	if longest < 2 || !(most > 0) {
		return c
	}
	y := func(v float64) float64 { return curvesHigh - 10 - v/most*(curvesHigh-28) }
	for i := range 3 {
		v := most * float64(i) / 2
		c.Levels = append(c.Levels, level{Y: y(v), Text: fmt.Sprintf("%.2f", v)})
	}
	dashes := []string{"none", "8 3", "2 3", "12 3 2 3", "5 5", "1 6"}
	for _, w := range workloads {
		if w.Learning == nil {
			continue
		}
		var points strings.Builder
		for i, v := range w.Learning.Loss {
			fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)/float64(longest-1)*(curvesWide-curvesNames), y(v))
		}
		k := len(c.Lines)
		c.Lines = append(c.Lines, curve{Name: w.Name, Points: points.String(), Dashes: dashes[k%len(dashes)],
			X: curvesWide - curvesNames + 12, Y: curvesLabel * float64(k+1)})
	}
	return c
}
