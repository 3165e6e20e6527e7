package verifytest

import (
	"slices"
	"testing"

	"railbed/internal/units"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// TestAllToAllFormula counts what each rank sends, element by element.
func TestAllToAllFormula(t *testing.T) {
	for ranks := 1; ranks < 9; ranks++ {
		for elements := range 40 {
			owner := make([]int, elements) // of an element, in order, so that parts differ by one at most
			for i := range owner {
				owner[i] = i % ranks
			}
			slices.Sort(owner)
			for rank := range ranks {
				sent := 0
				for _, to := range owner {
					if to != rank {
						sent += 4
					}
				}
				if got := AllToAllBytes(rank, ranks, units.Bytes(4*elements), 4,
					3); got != units.Bytes(3*sent) {
					t.Errorf("rank %d of %d with %d elements: %d, want %d", rank, ranks, elements, got,
						3*sent)
				}
				if elements%ranks == 0 && sent != 4*elements*(ranks-1)/ranks {
					t.Errorf("%d bytes are no (n-1)/n of %d elements", sent, elements)
				}
			}
		}
	}
}

// TestRingFormula checks the closed formula against a count of the algorithm's
// steps.
func TestRingFormula(t *testing.T) {
	for ranks := 2; ranks < 20; ranks++ {
		chunk := 1000
		sent := 0
		for range 2 * (ranks - 1) { // reduce-scatter, then all-gather
			sent += chunk
		}
		if got := RingAllReduceBytes(ranks, units.Bytes(chunk*ranks),
			3); got != units.Bytes(3*sent) {
			t.Errorf("%d ranks: %d, want %d", ranks, got, 3*sent)
		}
	}
	if RingAllReduceBytes(1, 1000, 1) != 0 {
		t.Error("one rank sends nothing")
	}
}
