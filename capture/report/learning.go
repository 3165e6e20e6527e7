package report

import (
	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/internal/units"
)

// Learning holds the losses and the accuracy of a workload of kind sgd, which trains a real model.
type Learning struct {
	// Loss is the loss by iteration, in nats, over the training samples.
	Loss []float64 `json:"loss"`
	// Held is the loss and Accuracy the share of correct answers, both at the end, over samples
	// that no rank trained on.
	Held     float64 `json:"held_out_loss"`
	Accuracy float64 `json:"held_out_accuracy"` // share of right answers for data that it was not trained on
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

func loss(nats float64) string { return units.Digits(nats) }
