package live

import (
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/clock"
)

// TestStampsFollowTheWallClock has frames come before the loop has noticed that the
// wall clock was set.
func TestStampsFollowTheWallClock(t *testing.T) {
	engine, err := softswitch.New(compileTwo(t, "\n  switch: {kind: soft}\n"), softswitch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, dilation := range []uint64{1, 7} {
		for _, step := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond} {
			l := &loop{clock: clock.New(dilation), engine: engine}
			l.compareClocks()
			l.engine.Advance(l.clock.Now())
			l.wall -= int64(step)
			before := l.clock.Now()
			at := l.sentAt(time.Now().UnixNano())
			if after := l.clock.Now(); at < before-clock.Time(time.Millisecond) || at > after {
				t.Errorf("dilation %d: a frame of now, after a step of %v, was sent at %v, want between %v "+
					"and %v", dilation, step, at, before, after)
			}
		}
	}
}
