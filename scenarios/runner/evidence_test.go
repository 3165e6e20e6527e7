package runner

import (
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/workloads/worker"
)

// TestTimesOfOperations: the timed operations count, and each as often as it was repeated.
func TestTimesOfOperations(t *testing.T) {
	at := time.Unix(1000, 0)
	r := &worker.Result{Operations: []worker.Operation{
		{Start: at, Time: time.Second},
		{Start: at.Add(time.Second), Time: time.Second, Timed: true},
		{Start: at.Add(2 * time.Second), Time: time.Second, Count: 3, Timed: true},
	}}
	f := judge.Finished{}
	if f.Timed(r, nil); !f.Began.Equal(at.Add(time.Second)) || !f.Ended.Equal(at.Add(5*time.Second)) {
		t.Errorf("%v to %v", f.Began, f.Ended)
	}
}
