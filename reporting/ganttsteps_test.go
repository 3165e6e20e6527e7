package reporting

import (
	"slices"
	"testing"

	"railbed/capture/report"
	"railbed/internal/svg"
)

// TestStepBars holds that steps are where they were. Parts that ran side by side have rows of their own, and
// many steps are one path.
func TestStepBars(t *testing.T) {
	lane := report.Lane{Spans: []report.Span{{Of: report.OperationSpan, End: 8}, {Of: report.MessageSpan,
		Start: 1, End: 2}},
		Steps: []report.RankSteps{
			{Count: 3, Each: 1, Ends: []float64{2, 3, 6}},
			{Count: 2, Each: 1, Start: 4, Ends: []float64{5, 7}},
			{Count: 1, Each: 1, Start: 6, Ends: []float64{8}}}}
	x := svg.Axis{To: 8, Left: 100, Size: 800}
	bars, height := laneBars(&lane, x, 20, true)
	const first, second, third = 20 + ganttLane, 20 + 2*ganttLane, 20 + 3*ganttLane
	want := []ganttBar{
		{Class: ganttCompute, X: 100, Width: 800, Y: 20}, {Class: ganttMessage, X: 200, Width: 100, Y: third},
		{Class: ganttStep, X: 100, Width: 200, Y: first}, {Class: ganttOdd, X: 300, Width: 100, Y: first},
		{Class: ganttStep, X: 400, Width: 300, Y: first},
		{Class: ganttStep, X: 500, Width: 100, Y: second}, {Class: ganttOdd, X: 600, Width: 200, Y: second},
		{Class: ganttStep, X: 700, Width: 200, Y: first},
	}
	for i := range bars {
		bars[i].Text = ""
	}
	if !slices.Equal(bars, want) || height != 4*ganttLane {
		t.Errorf("bars %+v of height %d, want %+v", bars, height, want)
	}
	bars, _ = laneBars(&lane, x, 20, false)
	if got, want := bars[3].Path, "M300 33h100"; got != want || len(bars) != 8 ||
		bars[2].Text != "the longest is step 3 of 3 (3s to 6s); 3 steps: 0s to 6s" {
		t.Errorf("%d bars; the path of steps is %s, want %s; the text is %q", len(bars), got, want,
			bars[2].Text)
	}
}
