package report

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
