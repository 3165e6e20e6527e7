package runner

import (
	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/workloads/worker"
)

// sgdOutcome is the outcome of an SGD training.
type sgdOutcome struct{ collectiveOutcome }

// finishSGD adds the results of a training to the outcome of its collective.
func finishSGD(of collectiveOutcome, own *worker.Learning) outcome {
	of.Learning = &report.Learning{Loss: own.Loss, Held: own.Held, Accuracy: own.Accuracy,
		Clipped: own.Clipped}
	return sgdOutcome{of}
}

func (o sgdOutcome) correctness() correctness {
	words := elements(o.Ranks)
	words.wrong = "%d errors: a rank had other weights than rank 0 after an iteration, or an element of " +
		"the first or last sum of gradients was wrong"
	words.right = plural.Text("all %d ranks have the same weights after each of %d iterations", o.Ranks,
		o.Iterations)
	words.without = ", without"
	return words
}
