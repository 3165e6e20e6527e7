package report

import (
	"slices"
	"testing"
)

func TestSignalsWithoutEffect(t *testing.T) {
	const noPause = "PFC had nothing to do: no port was paused"
	const noMark = "ECN had nothing to do: switches marked no packet"
	for _, c := range []struct {
		s    *Signals
		want []string
	}{
		{nil, nil},
		{&Signals{PFC: true, ECN: true}, []string{noPause, noMark}},
		{&Signals{PFC: true, ECN: true, Pauses: 1}, []string{noMark}},
		{&Signals{PFC: true, ECN: true, Marks: 1}, []string{noPause}},
		{&Signals{ECN: true, Marks: 1}, nil},
		{&Signals{PFC: true}, []string{noPause}},
	} {
		if got := c.s.Notes(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
		if got := (&Report{Signals: c.s}).notes(); !slices.Equal(got, c.want) {
			t.Errorf("the report with %+v: %q, want %q", c.s, got, c.want)
		}
	}
}
