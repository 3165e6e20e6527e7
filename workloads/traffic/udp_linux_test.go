package traffic

import (
	"testing"
	"time"
)

// TestHeldUp: a source catches up on 5 ms. The rest of a longer interval counts as held up, wherever in the
// interval the source had no processor, but not if it waited for room in its node's queue.
func TestHeldUp(t *testing.T) {
	const frame = 1250 // bytes: 1 ms at 10 Mbit/s
	start := time.Now()
	for _, test := range []struct {
		since, waited, held time.Duration
		frames              uint64
	}{
		{time.Millisecond, 0, 0, 1},
		{5500 * time.Microsecond, 0, 500 * time.Microsecond, 5},
		{100 * time.Millisecond, 0, 95 * time.Millisecond, 5},
		{100 * time.Millisecond, 60 * time.Millisecond, 35 * time.Millisecond, 5},
		{100 * time.Millisecond, 99 * time.Millisecond, 0, 5},
	} {
		p := pace{rate: 10_000_000, each: frame * 8 * uint64(time.Second), last: start, waited: test.waited}
		got := p.frames(start.Add(test.since))
		if got != test.frames || p.held != test.held || p.waited != 0 {
			t.Errorf("%v, of which %v waited: %d frames, held up for %v; want %d and %v", test.since,
				test.waited, got, p.held, test.frames, test.held)
		}
	}
}
