package rank

import (
	"fmt"
	"testing"
	"time"

	"railbed/transports"
	"railbed/workloads/collective"
)

// TestThin holds that ends are kept in equal distances, and the last one in any case.
func TestThin(t *testing.T) {
	for _, test := range []struct {
		count, most int
		want        string
	}{
		{1, 4, "each 1: [1ns]"}, {4, 4, "each 1: [1ns 2ns 3ns 4ns]"}, {5, 4, "each 2: [2ns 4ns 5ns]"},
		{8, 4, "each 2: [2ns 4ns 6ns 8ns]"}, {9, 4, "each 3: [3ns 6ns 9ns]"}, {9, 1, "each 9: [9ns]"},
	} {
		s := Steps{Count: test.count}
		for i := range s.Count {
			s.Ends = append(s.Ends, time.Duration(i+1))
		}
		s.thin(test.most)
		if got := fmt.Sprintf("each %d: %v", s.Each, s.Ends); got != test.want {
			t.Errorf("%d ends, of which %d may stay: %s, want %s", test.count, test.most, got, test.want)
		}
	}
}

// TestStepsAreBounded makes ten rings of 80 ranks the algorithm of a rank.
func TestStepsAreBounded(t *testing.T) {
	p := &Process{}
	const ranks, rings = 80, 10
	for i := range rings {
		ring, err := collective.NewRing(collective.Ring{Ranks: ranks, Count: ranks})
		if err != nil {
			t.Fatal(err)
		}
		lengths := ring.Lengths(0)
		config := collective.RunnerConfig{Algorithm: ring, Peers: make([]transports.Peer, ranks),
			Handles: make([]collective.Memory[[]byte], ranks),
			Steps:   p.LogSteps("", Numbered("ring", i, rings))}
		config.Memory.Input, config.Memory.Output = make([]byte, lengths.Input), make([]byte, lengths.Output)
		if _, err := collective.NewRunner(config); err != nil {
			t.Fatal(err)
		}
	}
	all, leftOut := p.stepsSince(time.Time{})
	if len(all) != partsKept || leftOut != rings-partsKept {
		t.Errorf("%d parts and %d left out", len(all), leftOut)
	}
	const steps, each = 2 * (ranks - 1), 10
	for i, s := range all {
		if s.Of != fmt.Sprint("ring ", i) || s.Count != steps || s.Each != each ||
			len(s.Ends) != (steps+each-1)/each || len(all)*len(s.Ends) > endsKept {
			t.Errorf("%d ends of %d steps each in %+v", len(s.Ends), s.Each, s)
		}
	}
	if all, leftOut := p.stepsSince(time.Now()); len(all) > 0 || leftOut > 0 {
		t.Errorf("%d parts of a round in which nothing ran", len(all)+leftOut)
	}
}
