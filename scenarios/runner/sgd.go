package runner

import (
	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/scenarios/runner/judge"
	"railbed/workloads/worker"
)

// sgdOutcome is the outcome of an SGD training.
type sgdOutcome struct{ collectiveOutcome }

// finishSGD adds the results of a training to the outcome of its collective.
func finishSGD(of collectiveOutcome, own *worker.Learning) judge.Outcome {
	of.Learning = &report.Learning{Loss: own.Loss, Held: own.Held, Accuracy: own.Accuracy,
		Clipped: own.Clipped}
	return sgdOutcome{of}
}

func (o sgdOutcome) Correctness() judge.Correctness {
	words := judge.Elements(o.Ranks)
	words.Wrong = "%d errors: a rank had other weights than rank 0 after an iteration, or an element of " +
		"the first or last sum of gradients was wrong"
	words.Right = plural.Text("all %d ranks have the same weights after each of %d iterations", o.Ranks,
		o.Iterations)
	words.Without = ", without"
	return words
}
