package reporting

import (
	"bytes"
	"strings"
	"testing"

	"railbed/capture/report"
)

// said returns a report of messages and a training job, as text and as a page.
func said(t *testing.T, r *report.Report) map[string]string {
	t.Helper()
	var text, page bytes.Buffer
	if err := WriteText(&text, r, TextOptions{Verbose: true}); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page, r, HTMLOptions{}); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"text": text.String(), "page": page.String()}
}

// TestMessagesAreTold holds that the parts of a mix, slowdowns, and ranks that are slow are in
// both reports, and that nothing is said of ranks that are not.
func TestMessagesAreTold(t *testing.T) {
	r := sample()
	times := report.Percentiles{Count: 7, P50: 0.002, P95: 0.003, P99: 0.004, P999: 0.005, Most: 0.006}
	r.Messages = []report.Messages{
		{Name: "disk", Transport: "rd", Count: 10, PerSecond: 5001, What: "block", Times: times,
			Parts: []report.MessagesPart{{What: "read", PerSecond: 3002, Times: times},
				{What: "write", PerSecond: 2003, Times: times}},
			Slow: &report.SlowRank{Rank: 2, Node: "h2", Median: 0.05, Others: 0.001}},
		{Name: "web", Transport: "tcp", Count: 9, What: "message", Times: times,
			Slowdowns: []report.Slowdown{{AtMost: 777, Percentiles: report.Percentiles{Count: 3,
				P50: 1.25}}}},
	}
	job := trained()
	job.Straggler = &report.Straggler{Rank: 1, Node: "h1", Worked: 0.4, Others: 0.05}
	r.Trainings = []report.Training{job}
	slow, straggler := "disk: messages from and to rank 2 on h2 took 50ms in the median, the others 1ms",
		"job: the ranks waited for rank 1 on h1: it worked 40% of the time, the others at most 5%"
	for kind, text := range said(t, r) {
		for _, want := range []string{slow, straggler, "read", "3002", "write", "2003", "777", "1.25"} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s lacks %q", kind, want)
			}
		}
	}
	r.Messages[0].Slow, r.Trainings[0].Straggler = nil, nil
	for kind, text := range said(t, r) {
		if strings.Contains(text, "from and to rank") || strings.Contains(text, "job: the ranks waited") {
			t.Errorf("the %s names a rank that is not slow", kind)
		}
	}
}

// TestTextSaysWhatIsNotKept: a run of more events than a testbed keeps says of how many it knows
// nothing.
func TestTextSaysWhatIsNotKept(t *testing.T) {
	for dropped, want := range map[int]bool{0: false, 77: true} {
		var text strings.Builder
		if err := WriteText(&text, &report.Report{EventsDropped: dropped}, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "77 events of the testbed were not kept"); got != want {
			t.Errorf("of %d dropped events:\n%s", dropped, text.String())
		}
	}
}
