package reporting

import (
	"slices"
	"testing"

	"railbed/capture/report"
)

func TestSignalsWithoutEffect(t *testing.T) {
	const noPause = "PFC had nothing to do: no port was paused"
	const noMark = "ECN had nothing to do: switches marked no packet"
	for _, c := range []struct {
		s    *report.Signals
		want []string
	}{
		{nil, nil},
		{&report.Signals{PFC: true, ECN: true}, []string{noPause, noMark}},
		{&report.Signals{PFC: true, ECN: true, Pauses: 1}, []string{noMark}},
		{&report.Signals{PFC: true, ECN: true, Marks: 1}, []string{noPause}},
		{&report.Signals{ECN: true, Marks: 1}, nil},
		{&report.Signals{PFC: true}, []string{noPause}},
	} {
		if got := c.s.Notes(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
		if got := notesOf(&report.Report{Signals: c.s}); !slices.Equal(got, c.want) {
			t.Errorf("the report with %+v: %q, want %q", c.s, got, c.want)
		}
	}
}
