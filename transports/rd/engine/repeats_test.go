package engine

import (
	"testing"
	"time"

	"railbed/internal/clock"
)

// TestRepeatsByCause gives one packet of a stream, or the last packet, one fate each, and compares the cause
// that is counted.
func TestRepeatsByCause(t *testing.T) {
	for name, test := range map[string]struct {
		psn  uint32
		fate fate
		want Repeats
	}{
		"lost":     {500, fate{lost: true}, Repeats{Bytes: 512, Late: 1}},
		"trimmed":  {500, fate{trim: true}, Repeats{Bytes: 512, Trimmed: 1}},
		"overdue":  {500, fate{delay: 400 * time.Microsecond}, Repeats{Bytes: 512, Late: 1, Needless: 1}},
		"the last": {1279, fate{lost: true}, Repeats{Bytes: 512, Probed: 1}},
		"twice":    {500, fate{twice: time.Millisecond}, Repeats{}}, // by the network
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			a, b := w.pair(func(c *Config) { c.Pacer = NewPacer(1_000_000_000) })
			w.watch(a, func(at uint32, n int) (f fate) {
				if at == test.psn && n == 1 {
					return test.fate
				}
				return f
			})
			_, key := b.region(1 << 16)
			a.sends(0, key, 1<<16, 10, 4) // 1,280 packets
			w.run(clock.Time(time.Minute))
			c := a.Counters()
			if c.Repeats != test.want || len(b.received) != 10 || c.Repeated != c.Repeats.Late+
				c.Repeats.Trimmed+c.Repeats.Probed+c.Repeats.Refused {
				t.Errorf("%+v, want %+v; %d messages", c, test.want, len(b.received))
			}
		})
	}
}
