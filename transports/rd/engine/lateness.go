package engine

import (
	"time"

	"railbed/internal/clock"
)

// lateness is how late packets come: what tells one that is lost from one that
// was overtaken. It is the longest round trip of a packet in the last two
// periods, and a quarter of it more. When a
// path's queue grows, that time grows with it: a quarter is enough as long as
// the time of packets sent later is at most four times as long as that of those
// that have just come. When the peer saw packets twice the margin was too small,
// and grows.
type lateness struct {
	longest  [2]time.Duration // in this period and the last
	began    clock.Time       // of this one
	shortest time.Duration    // the shortest round trip ever
	smooth   time.Duration    // smoothed round trip (RFC 6298, 2.3)
	vary     time.Duration
	margin   time.Duration // in quarters of the longest
	periods  int
	samples  int // in this one
	known    bool
}

const (
	// slack is what the clocks and queues of hosts add.
	slack = 20 * time.Microsecond
	// leastPeriod and leastSamples keep the memory over pauses between messages,
	// and until a slow path had its turn where packets are few.
	leastPeriod  = 10 * time.Millisecond
	leastSamples = 32
	mostMargin   = 12
	// forgive is after how many periods a margin that grew shrinks by a step.
	forgive = 32
)

func (l *lateness) reset() { *l = lateness{margin: 1} }

// trip takes a measured round trip: of the packet that took longest among those
// that one acknowledgement is about.
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

// spurious takes that something was sent twice for nothing.
func (l *lateness) spurious() { l.margin = min(l.margin+1, mostMargin) }

// bound is how late a packet can be that is not lost.
func (l *lateness) bound() time.Duration {
	longest := max(l.longest[0], l.longest[1], l.smooth+4*l.vary)
	if longest == 0 {
		return firstProbe
	}
	return longest + longest*l.margin/4 + slack
}

// probe is how long silence may last before it is asked about.
func (l *lateness) probe() time.Duration {
	if !l.known {
		return firstProbe
	}
	return max(leastProbe, l.bound()+l.smooth)
}
