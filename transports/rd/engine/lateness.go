package engine

import (
	"time"

	"railbed/internal/clock"
)

// lateness measures how late packets arrive, to distinguish lost packets from overtaken ones. Its
// bound is the longest round trip of the last two periods, and a quarter more. When a path's queue
// grows, round trips grow with it. A quarter suffices as long as a later packet's round trip is at
// most four times that of packets that arrive now. When the peer received packets twice, the margin
// was too small and grows.
type lateness struct {
	longest  [2]time.Duration // in this period and the last
	began    clock.Time       // of this period
	shortest time.Duration    // the shortest round trip ever
	smooth   time.Duration    // smoothed round trip (RFC 6298, 2.3)
	vary     time.Duration
	margin   time.Duration // in quarters of the longest
	periods  int
	samples  int // in this period
	known    bool
}

const (
	// slack is the delay that clocks and queues of hosts add.
	slack = 20 * time.Microsecond
	// leastPeriod and leastSamples keep the measurements over pauses between messages, and until
	// slow paths were used where packets are few.
	leastPeriod  = 10 * time.Millisecond
	leastSamples = 32
	mostMargin   = 12
	// forgive is the number of periods after which a margin that grew shrinks by a step.
	forgive = 32
)

func (l *lateness) reset() { *l = lateness{margin: 1} }

// trip records a measured round trip: the longest among the packets that one acknowledgement
// covers.
func (l *lateness) trip(d time.Duration, now clock.Time) {
	if !l.known {
		l.began = now
	}
	l.samples++
	if l.samples > leastSamples && now.Sub(l.began) > max(leastPeriod, 8*l.longest[0]) {
		l.longest[1], l.longest[0], l.began, l.samples = l.longest[0], 0, now, 1
		if l.periods++; l.periods%forgive == 0 {
			l.margin = max(l.margin-1, 1)
		}
	}
	l.longest[0] = max(l.longest[0], d)
	if !l.known {
		l.known, l.smooth, l.vary, l.shortest = true, d, d/2, d
		return
	}
	l.shortest = min(l.shortest, d)
	l.vary += ((l.smooth - d).Abs() - l.vary) / 4
	l.smooth += (d - l.smooth) / 8
}

// spurious records an unnecessary retransmission.
func (l *lateness) spurious() { l.margin = min(l.margin+1, mostMargin) }

// bound is the time in flight from which a packet counts as lost.
func (l *lateness) bound() time.Duration {
	longest := max(l.longest[0], l.longest[1], l.smooth+4*l.vary)
	if longest == 0 {
		return firstProbe
	}
	return longest + longest*l.margin/4 + slack
}

// probe is how long the peer may be silent before it is probed.
func (l *lateness) probe() time.Duration {
	if !l.known {
		return firstProbe
	}
	return max(leastProbe, l.bound()+l.smooth)
}
