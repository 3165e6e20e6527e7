package path

import (
	"time"

	"railbed/internal/clock"
)

// maxRing is the largest ring of REPS.
const maxRing = 1 << 12

// ring keeps the newest entropies of good acknowledgements: a new one replaces the oldest.
type ring struct {
	entries []entry
	head    int // the index of the next entry
	filled  int // entries ever written
	fresh   int // entries before head that are not used up
}

// entry is valid for as many packets as its acknowledgement covered, so that acknowledgements of
// several packets keep the balance.
type entry struct{ path, uses int }

func (r *ring) add(path, uses int) {
	r.entries[r.head] = entry{path, uses}
	if r.head++; r.head == len(r.entries) {
		r.head = 0
	}
	r.filled = min(r.filled+1, len(r.entries))
	r.fresh = min(r.fresh+1, len(r.entries))
}

// recycle returns the path of the oldest fresh entry and takes one use from it. It returns false
// when no entry is fresh. Entries of unusable paths are discarded.
func (r *ring) recycle(usable *set) (path int, ok bool) {
	for r.fresh > 0 {
		at := r.head - r.fresh
		if at < 0 {
			at += len(r.entries)
		}
		e := &r.entries[at]
		if !usable.has(e.path) {
			r.fresh--
			continue
		}
		if e.uses--; e.uses == 0 {
			r.fresh--
		}
		return e.path, true
	}
	return 0, false
}

func (r *ring) reset() { r.head, r.filled, r.fresh = 0, 0, 0 }

// good reports whether REPS reuses an entropy: its packet met no full queue, except perhaps the
// last one, where all paths end.
func (e Event) good() bool { return e == Acked || e == TrimmedLastHop || e == ProbeReturned }

// reps reuses the entropies of good acknowledgements, the oldest first, once for each acknowledged
// packet. When none is left, it draws one at random. So it keeps entropies that work and replaces
// those that were marked, trimmed or lost. It keeps the last 8. After a failure it is frozen for 10
// ms: it goes round its ring, including used entries, and draws no new entropy. Then it clears the
// ring and draws 16 times.
//
// A failure is a timeout, as in uet-htsim, or a path that became bad: rd's senders find dead paths
// by selective acknowledgement and probes before the timer fires. While REPS is frozen or draws its
// 16 entropies, another failure does not freeze it.
type reps struct {
	States
	ring      ring
	freeze    time.Duration
	exploring int  // picks left to draw
	explore   int  // picks to draw after a freeze
	frozen    bool // until thaw
	thaw      clock.Time
	cursor    int    // in the ring, while frozen
	excluded  uint64 // the counter Excluded at the last turn
}

func newREPS(n int, o Options) *reps {
	return &reps{States: newStates(n, o), ring: ring{entries: make([]entry, o.Ring)}, freeze: o.Freeze,
		explore: o.Explore}
}

// Feedback processes a report on packets.
func (c *reps) Feedback(r Report, now clock.Time) {
	c.States.Feedback(r, now)
	if r.Path < 0 || r.Path >= c.n {
		return
	}
	c.turn(now, r.Event == TimedOut)
	if r.Event.good() && c.usable.has(r.Path) {
		c.ring.add(r.Path, max(r.Packets, 1))
	}
}

// turn begins and ends a freeze.
func (c *reps) turn(now clock.Time, failure bool) {
	if c.counters.Excluded != c.excluded {
		c.excluded, failure = c.counters.Excluded, true
	}
	if failure && !c.frozen && c.exploring == 0 {
		c.frozen, c.thaw, c.cursor = true, now.Add(c.freeze), 0
	}
	if c.frozen && now > c.thaw {
		c.frozen, c.exploring = false, c.explore
		c.ring.reset()
	}
}

// Frozen reports whether REPS keeps to its ring after a failure.
func (c *reps) Frozen() bool { return c.frozen }

// Pick returns the path of the next packet or batch.
func (c *reps) Pick(now clock.Time) int {
	p, ok := c.only(now)
	c.turn(now, false)
	if ok {
		return p
	}
	switch {
	case c.exploring > 0:
		c.exploring--
	case c.frozen:
		for range c.ring.filled {
			if c.cursor >= c.ring.filled {
				c.cursor = 0
			}
			e := c.ring.entries[c.cursor]
			c.cursor++
			if c.usable.has(e.path) {
				return c.take(e.path, now)
			}
		}
	default:
		if p, ok := c.ring.recycle(&c.usable); ok {
			return c.take(p, now)
		}
	}
	return c.take(c.anyone(), now)
}

// Mixed reuses the entropies of good acknowledgements, in their order, and chooses like Bitmap when
// none is left. It keeps as many as there are paths. uet-htsim has no limit and keeps a window of
// them.
type Mixed struct {
	Bitmap
	ring ring
}

func newMixed(n int, o Options) *Mixed {
	return &Mixed{Bitmap: *newBitmap(n, o), ring: ring{entries: make([]entry, n)}}
}

// Feedback processes a report on packets.
func (c *Mixed) Feedback(r Report, now clock.Time) {
	c.Bitmap.Feedback(r, now)
	if r.Path >= 0 && r.Path < c.n && r.Event.good() && c.usable.has(r.Path) {
		c.ring.add(r.Path, max(r.Packets, 1))
	}
}

// Pick returns the path of the next packet or batch.
func (c *Mixed) Pick(now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	if p, ok := c.ring.recycle(&c.usable); ok {
		return c.take(p, now)
	}
	return c.take(c.choose(), now)
}
