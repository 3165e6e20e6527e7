package report

import (
	"slices"
	"testing"
)

func TestNotesOfRoCE(t *testing.T) {
	for _, c := range []struct {
		r    RoCE
		want []string
	}{
		{RoCE{}, nil},
		{RoCE{Packets: 110, Again: 10}, nil},
		{RoCE{Packets: 150, Again: 50, NAKs: 1, Timeouts: 2},
			[]string{"roce sent 50% of its packets again, after 1 NAK, 0 RNR NAKs and 2 timeouts"}},
		{RoCE{Packets: 100, DCQCN: true, CNPs: 3}, nil},
		{RoCE{Packets: 100, DCQCN: true},
			[]string{"DCQCN had nothing to do: receivers got no marked packet, and sent no CNP"}},
	} {
		if got := c.r.Notes(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}
