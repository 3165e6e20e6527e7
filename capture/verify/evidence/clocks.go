package evidence

import (
	"math"
	"slices"
	"time"

	"railbed/internal/plural"
)

// clocks compares the times of the two ends of links. It looks at a tap's first packets, a sample
// of the others, and all control frames. The ends have different clocks if a packet is received
// before it was sent, or if no packet is received within the time that queues explain.
type clocks struct {
	capture *Capture
	seen    map[sighted]passed
	links   map[[2]int]*crossing // by the taps at the two ends
}

// sighted is a packet on a link. The link is part of the key because a tap whose clock is behind
// shows a packet before earlier links do.
type sighted struct {
	id   uint64
	link string
}

// passed is the first sighting of a packet on a link.
type passed struct {
	at  int64
	tap *Tap
	in  bool
}

// crossing holds the shortest time that a packet took from one tap to another.
type crossing struct {
	from, to *Tap
	least    int64
	count    int
}

const (
	clockFirst  = 64      // number of first packets of a tap that are compared
	clockSample = 16      // one of so many other packets is compared
	clockSeen   = 1 << 14 // packets that are remembered
	clockLeast  = 4       // least number of packets, all of them late
	// StampSlack is the possible difference between timestamps of the kernel and of a switch.
	StampSlack = 5 * time.Millisecond
)

func newClocks(c *Capture) *clocks {
	return &clocks{capture: c, seen: map[sighted]passed{}, links: map[[2]int]*crossing{}}
}

// take compares a packet with the other sighting of it on its link.
func (k *clocks) take(p *Packet) {
	looked := p.Tap.Packets <= clockFirst || p.ID%clockSample == 0 || p.Control()
	if !looked || p.Tap.Link == "" || p.Drop != "" || p.Direction == Unknown {
		return
	}
	now := passed{p.Time, p.Tap, p.Direction == In}
	key := sighted{p.ID, p.Tap.Link}
	first, known := k.seen[key]
	if !known || first.tap == p.Tap || first.in == now.in {
		if len(k.seen) >= clockSeen {
			clear(k.seen)
		}
		k.seen[key] = now
		return
	}
	delete(k.seen, key)
	if now.in {
		k.crossed(first.tap, p.Tap, p.Time-first.at)
	} else {
		k.crossed(p.Tap, first.tap, first.at-p.Time)
	}
}

func (k *clocks) crossed(from, to *Tap, took int64) {
	key := [2]int{from.Index, to.Index}
	c := k.links[key]
	if c == nil {
		c = &crossing{from: from, to: to, least: math.MaxInt64}
		k.links[key] = c
	}
	c.least = min(c.least, took)
	c.count++
}

// disagreements lists links whose two ends have different clocks.
func (k *clocks) disagreements() (lines []string) {
	if k == nil {
		return nil
	}
	most := k.capture.Linger() + int64(StampSlack)
	for _, c := range k.links {
		switch {
		case c.least < -int64(StampSlack):
			lines = append(lines, plural.Text("clocks differ: of %d packets from %s to %s one arrived %v "+
				"before it left", c.count, c.from.Name, c.to.Name, time.Duration(-c.least)))
		case c.least > most && c.count >= clockLeast:
			lines = append(lines, plural.Text("clocks differ: of %d packets from %s to %s none took less "+
				"than %v", c.count, c.from.Name, c.to.Name, time.Duration(c.least)))
		}
	}
	slices.Sort(lines)
	return lines
}
