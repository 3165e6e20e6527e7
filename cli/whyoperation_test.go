package cli

import (
	"testing"

	"railbed/capture/report"
)

// TestStepAt looks for the step of rank 1 at some times. Threads run side by side, so the step of a message
// is not known there.
func TestStepAt(t *testing.T) {
	zero, one := 0, 1
	a := report.Activity{Lanes: []report.Lane{
		{Rank: &zero, Steps: []report.RankSteps{{Count: 1, Each: 1, Ends: []float64{9}}}},
		{Rank: &one, Steps: []report.RankSteps{
			{Of: "thread 0", Count: 3, Each: 2, Start: 1, Ends: []float64{2, 5}},
			{Of: "thread 1", Count: 1, Each: 1, Start: 3, Ends: []float64{4}}}},
		{Node: "h2"},
	}}
	for at, want := range map[float64]string{-1: "", 1: "", 1.5: "thread 0: steps 1 to 2 of 3 of rank 1",
		2: "thread 0: steps 1 to 2 of 3 of rank 1", 2.5: "thread 0: step 3 of 3 of rank 1", 3.5: "",
		4.5: "thread 0: step 3 of 3 of rank 1", 6: ""} {
		if got := stepAt(&a, one, at); got != want {
			t.Errorf("at %v: %q, want %q", at, got, want)
		}
	}
}
