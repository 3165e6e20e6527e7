package path

import (
	"time"

	"railbed/internal/clock"
)

// maxRing is the largest ring of REPS.
const maxRing = 1 << 12

// ring keeps the entropies of good acknowledgements, the newest ones: a new one
// takes the place of the oldest.
type ring struct {
	entries []entry
	head    int // where the next one goes
	filled  int // entries that hold anything
	fresh   int // entries before head that are not used up
}

// entry is good for as many packets as its acknowledgement was about, so that
// acknowledgements of several packets keep the balance.
type entry struct{ path, uses int }

func (r *ring) add(path, uses int) {
	r.entries[r.head] = entry{path, uses}
	if r.head++; r.head == len(r.entries) {
		r.head = 0
	}
	r.filled = min(r.filled+1, len(r.entries))
	r.fresh = min(r.fresh+1, len(r.entries))
}

// recycle is the path of the oldest fresh entry, and one use less of it, false
// when nothing is fresh. Entries of unusable paths are used up at once.
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

// good says that REPS takes an entropy again: its packet found no full queue but
// perhaps the last, where all paths end.
func (e Event) good() bool { return e == Acked || e == TrimmedLastHop || e == ProbeReturned }

// REPS uses the entropies of good acknowledgements again, the oldest first, once
// for each packet acknowledged, and draws one at random when none is left: what
// works is kept, what was marked, trimmed or lost is replaced. It keeps the last
// 8. After a failure it is frozen for 10 ms: it goes round its ring, used up or
// not, and draws nothing new; then it forgets the ring and draws 16 times.
//
// A failure is a timeout, as in uet-htsim, or a path that became bad, since our
// senders find dead paths by selective acknowledgement and probes before the
// timer runs out. Nothing freezes it while it is frozen or draws its 16.
type REPS struct {
	States
	ring      ring
	freeze    time.Duration
	exploring int  // picks left to draw
	explore   int  // picks to draw after a freeze
	frozen    bool // until thaw
	thaw      clock.Time
	cursor    int    // in the ring, while frozen
	condemned uint64 // bad paths known
}

func newREPS(n int, o Options) *REPS {
	return &REPS{States: newStates(n, o), ring: ring{entries: make([]entry, o.Ring)}, freeze: o.Freeze,
		explore: o.Explore}
}

// Feedback takes in what became of packets.
func (c *REPS) Feedback(r Report, now clock.Time) {
	c.States.Feedback(r, now)
	if r.Path < 0 || r.Path >= c.n {
		return
	}
	c.turn(now, r.Event == TimedOut)
	if r.Event.good() && c.usable.has(r.Path) {
		c.ring.add(r.Path, max(r.Packets, 1))
	}
}

// turn freezes and thaws.
func (c *REPS) turn(now clock.Time, failure bool) {
	if c.counters.Condemned != c.condemned {
		c.condemned, failure = c.counters.Condemned, true
	}
	if failure && !c.frozen && c.exploring == 0 {
		c.frozen, c.thaw, c.cursor = true, now.Add(c.freeze), 0
	}
	if c.frozen && now > c.thaw {
		c.frozen, c.exploring = false, c.explore
		c.ring.reset()
	}
}

// Frozen reports whether a failure keeps it to its ring.
func (c *REPS) Frozen() bool { return c.frozen }

// Pick is the path of the next packet or batch.
func (c *REPS) Pick(now clock.Time) int {
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

// Mixed uses the entropies of good acknowledgements again, in their order, and
// chooses like Bitmap when none is left. It keeps as many as there are paths;
// uet-htsim, without a limit, keeps a window of them.
type Mixed struct {
	Bitmap
	ring ring
}

func newMixed(n int, o Options) *Mixed {
	return &Mixed{Bitmap: *newBitmap(n, o), ring: ring{entries: make([]entry, n)}}
}

// Feedback takes in what became of packets.
func (c *Mixed) Feedback(r Report, now clock.Time) {
	c.Bitmap.Feedback(r, now)
	if r.Path >= 0 && r.Path < c.n && r.Event.good() && c.usable.has(r.Path) {
		c.ring.add(r.Path, max(r.Packets, 1))
	}
}

// Pick is the path of the next packet or batch.
func (c *Mixed) Pick(now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	if p, ok := c.ring.recycle(&c.usable); ok {
		return c.take(p, now)
	}
	return c.take(c.choose(), now)
}
