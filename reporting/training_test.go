package reporting

import (
	"math"
	"strings"
	"testing"

	"railbed/capture/report"
)

func trained() report.Training {
	return report.Training{
		Name:       "job",
		LeftOut:    report.LeftOut{Missing: 12, MayMiss: 30},
		Ranks:      2,
		Warmup:     1,
		Iterations: []float64{0.4, 0.1, 0.2},
		Ideal:      0.1,
		Wrong:      3,
		PerRank: []report.TrainingRank{
			{Rank: 0, Node: "h0", NIC: "eth0", Compute: 0.5, Exposed: 0.3, Idle: 0.2,
				Groups: []report.TrainingGroup{{Group: "tp", Expected: 40, Sent: 40, Exposed: 0.2},
					{Group: "dp", Expected: 400, Sent: 400, Exposed: 0.1}}},
			{Rank: 1, Node: "h1", NIC: "eth0", Compute: 0.6, Exposed: 0.4,
				Groups: []report.TrainingGroup{{Group: "dp", Expected: 800, Sent: 801, Exposed: 0.4}}},
		},
	}
}

func TestTrainingTable(t *testing.T) {
	job := trained()
	if m := job.Median(); m != 0.2 {
		t.Errorf("median %v, want 0.2", m)
	}
	if job.Iterations = append(job.Iterations, 0.3); job.Median() != 0.25 {
		t.Errorf("median %v of an even number, want 0.25", job.Median())
	}
	if (&report.Training{}).Median() != 0 {
		t.Error("a median of none")
	}
	var text strings.Builder
	r := report.Report{Trainings: []report.Training{trained()}}
	if err := WriteText(&text, &r, TextOptions{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(text.String()) {
		found = append(found, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"job 2 200.0 100.0 55.0% 35.0% 10.0% 3", "rank 0 (h0:eth0) 50.0% 30.0% 20.0%",
		"rank 1 (h1:eth0) 60.0% 40.0% 0.0%",
		"job dp 2 25.0% 100 to 200 rank 1 sent 801 in all, want 800", "job tp 1 10.0% 10 as expected",
		"job: 12 bytes were lost and left out; up to 30 may be",
	} {
		if !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("no line %q in\n%s", want, text.String())
		}
	}
}

// TestGantt holds that the picture has each task where it was, by its group.
func TestGantt(t *testing.T) {
	if empty := newGantt(&report.Training{}); len(empty.Bands) != 0 {
		t.Errorf("a picture of nothing: %+v", empty)
	}
	job := trained()
	job.Bars = [][]report.TrainingBar{
		{{Name: "forward", Group: "compute", End: 0.1},
			{Name: "gradients", Group: "dp", Start: 0.1, End: 0.2, Begun: 0.1, Steps: []report.RankSteps{
				{Count: 3, Each: 1, Start: 0.1, Ends: []float64{0.12, 0.18, 0.2}}}},
			{Name: "activations", Group: "tp", Start: 0.05, End: 0.15, Begun: 0.1}},
		{{Name: "forward", Group: "compute", Start: 0.15, End: 0.2}},
	}
	g := newGantt(&job)
	if len(g.Keys) != 4 || g.Keys[1].Text != "dp" || g.Keys[2].Text != "tp" {
		t.Errorf("keys %+v", g.Keys)
	}
	if len(g.Bands) != 2 || g.Bands[1].Text != "rank 1, h1" {
		t.Fatalf("bands %+v", g.Bands)
	}
	first, width := g.Bands[0], float64(timelineWidth-ganttLabels)
	for i, want := range []struct {
		x, width float64
		lane     int
		class    string
	}{
		{ganttLabels + width/4, width / 4, 2, "waits"},
		{ganttLabels, width / 2, 0, "compute"}, {ganttLabels + width/2, width / 2, 1, "group0"},
		{ganttLabels + width/2, width / 4, 2, "group1"},
	} {
		b := first.Bars[i]
		if math.Abs(b.X-want.x) > 1e-6 || math.Abs(b.Width-want.width) > 1e-6 ||
			b.Y != first.Y+want.lane*ganttLane || b.Class != want.class {
			t.Errorf("bar %d: %+v, want %+v", i, b, want)
		}
	}
	if last := g.Ticks[len(g.Ticks)-1]; !last.Last || last.Text != "200ms" {
		t.Errorf("last tick %+v", last)
	}
	r := report.Report{Name: "run", Trainings: []report.Training{job}}
	var text strings.Builder
	if err := WriteHTML(&text, &r, HTMLOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h2>Training jobs</h2>",
		"gradients (dp): 100ms to 200ms; the longest is step 2 of 3 (120ms to 180ms); 3 steps",
		`<path class="inside" d="M648 39h264">`, "Every second step of an exchange is lighter.",
		"<p>12 bytes were lost and left out; up to 30 may be</p>",
		"activations (tp): 50ms to 150ms, waited until 100ms", "rank 1, h1",
		`<td>all ranks</td><td class="n">55.0%</td><td class="n">25.0%</td><td class="n">10.0%</td><td class="n">10.0%</td>`, `<rect class="group1" x="60" y="0" width="20" height="6"/>`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
