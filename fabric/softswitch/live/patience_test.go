package live

import (
	"testing"
	"time"
)

// Polling is worth while for a ping-pong whose answers come soon. It is not for a ping-pong whose
// answers come later, or for frames that would be in time without it.
func TestPatience(t *testing.T) {
	// play has frames come every gap: looking finds them when they come in time,
	// a sleep ends with them. It returns the time spent looking in vain.
	now := time.Duration(0)
	play := func(p *patience, gap time.Duration, dueAtOnce bool, rounds int) (found int, vain time.Duration) {
		for range rounds {
			pays := p.pays(now)
			now += gap
			switch {
			case pays && gap < pollFor:
				p.polled(true)
				found++
				continue
			case pays:
				p.polled(false)
				vain += pollFor
			case dueAtOnce:
				p.overslept(gap)
			}
			p.rested(gap)
		}
		return found, vain
	}
	for _, c := range []struct {
		name      string
		gap       time.Duration
		dueAtOnce bool
		least     int
		most      int
	}{
		{"answers after 50 us", 50 * time.Microsecond, true, 880, 930}, // and little less than a tenth slept
		{"answers after 200 us", 200 * time.Microsecond, true, 0, 0},
		{"nothing due before the thread woke", 50 * time.Microsecond, false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, vain := play(&patience{}, c.gap, c.dueAtOnce, 1000)
			if found < c.least || found > c.most || vain != 0 {
				t.Errorf("found %d of 1000 frames by looking, looked %v in vain, want %d to %d and 0s", found,
					vain, c.least, c.most)
			}
		})
	}
	var p patience
	play(&p, 50*time.Microsecond, true, 1000)
	if _, vain := play(&p, time.Millisecond, true, 1000); vain != mostPatience*pollFor {
		t.Errorf("polled %v in vain after the answers had become slow, want %v", vain, mostPatience*pollFor)
	}
}
