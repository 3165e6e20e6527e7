package reporting

import (
	"bytes"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/svg"
)

// charts are the data of one chart of each kind, hostile words included.
func charts() report.Charts {
	rank := 0
	steps := []report.RankSteps{{Of: "dispatch<i>", Count: 5, Each: 2, Ends: []float64{0.1, 0.15, 0.2}},
		{Of: "combine", Count: 1, Each: 1, Start: 0.3, Ends: []float64{0.4}},
		{Of: "aside", Count: 2, Each: 1, Start: 0.1, Ends: []float64{0.3, 0.4}}}
	return report.Charts{
		Series: &report.Series{Source: "run.pcapng", Start: 0.5, Interval: 0.25, Links: []report.LinkSeries{
			{From: "h0:<i>eth0", To: "leaf0:p0", Asked: 1e9, Bits: []uint64{0, 5e8, 1e9, 0},
				Depth: []uint64{0, 0, 2048},
				Drops: []uint64{0, 0, 3}, Marks: []uint64{0, 4, 5}, Pauses: []uint64{1}, Again: []uint64{0,
					2}},
			{From: "leaf0:p4", To: "spine0:p0", Asked: 1e9, Bits: []uint64{0, 4e8}},
		}},
		Activities: []report.Activity{{Step: "ar<i>", What: "the operation", Start: 1,
			Source: "ranks and run.pcapng",
			Lanes: []report.Lane{{Rank: &rank, Node: "h0", Steps: steps, StepsLeftOut: 3,
				Spans: []report.Span{
					{Of: report.OperationSpan, Start: 0, End: 0.4, Waited: 0.1}, {Of: report.WaitSpan,
						Start: 0.1,
						End:   0.2},
					{Of: report.MessageSpan, Start: 0, End: 0.2, To: "rank 1<i>", Bytes: 4096, Message: 7},
					{Of: report.MessageSpan, Start: 0.1, End: 0.3, To: "rank 1", Bytes: 8192, Count: 2,
						Again: 1}}}}}},
		Distributions: []report.Distribution{report.NewDistribution("ar<i>", "message", report.RanksSource,
			[]float64{0.001, 0.01,
				0.1})},
	}
}

// TestUsesAreShares: a link that carried 125 MB in the second in which the run had traffic used its 1 Gbit/s.
func TestUsesAreShares(t *testing.T) {
	r := &report.Report{Steps: []report.Step{{End: 100}}, Fidelity: &report.Fidelity{Links: []report.LinkRate{
		{Link: "a", Direction: "b-to-a", Asked: 1e9, Bytes: 31_250_000, Peak: 5e8, Dropped: 2,
			Marks: map[string][8]uint64{"red": {1, 2}}},
		{Link: "a", Direction: "a-to-b", Asked: 1e9, Bytes: 125_000_000, Peak: 9e8},
		{Link: "b", Direction: "a-to-b", Bytes: 1},
	}}}
	r.Series = &report.Series{Interval: 0.5, Links: []report.LinkSeries{{Asked: 1e9, Bits: []uint64{0, 9e8,
		9e8, 1e6}}}}
	want := map[string][2]Use{"a": {{Share: 1, Peak: 1}, {Share: 0.25, Peak: 0.5, Drops: 2, Marks: 3}},
		"b": {}}
	for link, got := range Uses(r) {
		if got != want[link] {
			t.Errorf("link %s: %+v, want %+v", link, got, want[link])
		}
	}
	if r.Series = nil; Uses(r)["a"][0].Share != 0.01 {
		t.Errorf("without time lines the use is %+v, want a hundredth", Uses(r)["a"][0])
	}
}

func TestSteps(t *testing.T) {
	y := svg.Axis{To: 10, Left: 20, Size: -20}
	if got, want := steps(svg.Axis{To: 4, Size: 40}, y, 1, 1, []uint64{5, 5, 10}, true),
		"M10 20H10V10H30V0H40V20Z"; got != want {
		t.Errorf("steps are %s, want %s", got, want)
	}
}

// TestPageIsBounded holds that the largest charts that a run can have make a page below 2 MB. The steps have
// first the most parts and ends, then the most titles.
func TestPageIsBounded(t *testing.T) {
	parts := report.PartsKept(report.LanesKept)
	for _, steps := range [][2]int{{parts, 128 / parts}, {1, stepsTitled / report.LanesKept}} {
		pageIsBounded(t, steps[0], steps[1])
	}
}

// pageIsBounded writes a page with parts of an algorithm at each rank, and ends of steps in each part.
func pageIsBounded(t *testing.T, parts, ends int) {
	t.Helper()
	r := sample()
	var values []uint64
	for i := range report.SeriesPoints {
		values = append(values, uint64(i%2+1)*333_333_333)
	}
	lanes := make([]report.Lane, report.LanesKept)
	for rank := range lanes {
		lanes[rank] = report.Lane{Rank: &rank, Node: "node-of-the-cluster",
			Spans: []report.Span{{Of: report.OperationSpan,
				End: 1}}}
		for i := range 32 {
			at := float64(i) / 32
			lanes[rank].Spans = append(lanes[rank].Spans, report.Span{Of: report.WaitSpan, Start: at,
				End: at + 0.0123})
		}
		for range parts {
			s := report.RankSteps{Of: "channel 7", Count: 999, Each: 63}
			for i := range ends {
				s.Ends = append(s.Ends, float64(i+1)/float64(ends)*0.98765)
			}
			lanes[rank].Steps = append(lanes[rank].Steps, s)
		}
		for i := range report.MessagesKept(report.LanesKept) {
			at := float64(i) / 16
			lanes[rank].Spans = append(lanes[rank].Spans, report.Span{Of: report.MessageSpan, Start: at,
				End: at + 0.0567,
				To:  "rank 17", Bytes: 1 << 20, Message: 123_456, Again: 3})
		}
	}
	r.Series.Links, r.Activities = nil, nil
	for range report.SeriesLinks {
		r.Series.Links = append(r.Series.Links, report.LinkSeries{From: "leaf12:p34", To: "spine56:p78",
			Asked: 1e9,
			Bits:  values, Depth: values, Drops: values, Marks: values, Pauses: values, Again: values})
	}
	for range report.ActivitiesKept {
		r.Activities = append(r.Activities, report.Activity{Step: "ar", Source: "ranks and run.pcapng",
			Lanes: lanes})
	}
	var text bytes.Buffer
	if err := WriteHTML(&text, r, HTMLOptions{}); err != nil {
		t.Fatal(err)
	}
	if text.Len() > 2<<20 {
		t.Errorf("with %d parts of %d steps the page has %d bytes, want at most 2 MB", parts, ends,
			text.Len())
	}
}

// TestChartsSayWhatTheyShow looks for values that a reader finds by hovering, and for the sources.
func TestChartsSayWhatTheyShow(t *testing.T) {
	var text bytes.Buffer
	if err := WriteHTML(&text, sample(), HTMLOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"to leaf0:p0: at most 1 Gbit/s, queue at most 2 KiB, 3 packets dropped, " +
			"9 packets marked, 1 pauses, 2 packets sent again",
		"From the recording run.pcapng, each 250ms.",
		"operation: 0s to 400ms, waited for others for 100ms of it",
		"M340 30h220", "message 7 to rank 1&lt;i&gt;, 4 KiB: 0s to 200ms",
		"2 messages to rank 1, 8 KiB: 100ms to 300ms, 1 packet sent again", "by ranks and run.pcapng",
		"dispatch&lt;i&gt;: steps 3 to 4 of 5: 100ms to 150ms",
		"dispatch&lt;i&gt;: step 5 of 5: 150ms to 200ms",
		"combine: step 1 of 1: 300ms to 400ms", "aside: step 1 of 2: 100ms to 300ms",
		"Up to 2 steps in succession are drawn as one.", "up to 3 more parts of the algorithm whose",
		"ar&lt;i&gt;: messages<", `railbed follow &#39;my file&#39; --workload ar`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text.String(), "<i>") {
		t.Error("the page has an element of the report's words")
	}
}
