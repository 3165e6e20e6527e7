package path

import "railbed/internal/clock"

// rotation cycles through n paths, each once in a round. The order is drawn for each round and not
// stored: it starts at a random path and advances by a step that is coprime to n. The simulator
// uet-htsim XORs a counter with a number drawn for each round instead. That is uniform for powers
// of two only.
type rotation struct {
	n, path, step int
	left          int // of the round
}

func newRotation(n int, r *random) rotation {
	o := rotation{n: n}
	o.draw(r)
	return o
}

// draw begins a round.
func (o *rotation) draw(r *random) {
	o.left, o.path, o.step = o.n, r.below(o.n), 1+r.below(o.n)
	for !coprime(o.step, o.n) {
		o.step++ // n+1 is coprime to n
	}
}

func coprime(a, b int) bool {
	for b != 0 {
		a, b = b, a%b
	}
	return a == 1
}

func (o *rotation) next(r *random) int {
	if o.left == 0 {
		o.draw(r)
	}
	p := o.path
	o.left--
	o.path = (o.path + o.step) % o.n
	return p
}

// oblivious takes the usable paths in turn, each once in a rotation, in a new order each time. With
// the states Skip and Suspect it chooses as MRC does. With Options.IgnoreMarks it is uet-htsim's
// oblivious chooser, except for suspect and bad paths.
type oblivious struct {
	States
	turn rotation
}

func newOblivious(n int, o Options) *oblivious {
	c := &oblivious{States: newStates(n, o)}
	c.turn = newRotation(n, &c.random)
	return c
}

// Pick returns the path of the next packet or batch.
func (c *oblivious) Pick(now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	spare, behind := -1, c.turn
	// Two rounds' worth of steps contain one whole round, so they meet every path.
	for range 2 * c.n {
		p := c.turn.next(&c.random)
		if !c.usable.has(p) {
			continue
		}
		if c.ready(p) {
			return c.take(p, now)
		}
		if spare < 0 {
			spare, behind = p, c.turn
		}
	}
	// All paths are to sit out, so take the first one.
	c.turn = behind
	return c.take(spare, now)
}

// Penalties of Bitmap, in turns, as in uet-htsim, which calls a trimmed packet NACK. It has no
// penalty for packets that selective acknowledgements leave out. Here they count like trimmed ones.
const (
	penaltyMarked   = 1
	penaltyTrimmed  = 4
	penaltyTimedOut = 15
	penaltyMost     = 15
)

// Bitmap takes the usable paths in turn and passes over paths with a penalty. A mark counts 1, a
// packet lost or trimmed before the last hop 4, and a timeout 15. The sum is at most 15. A pick
// takes 1 from the penalty of the first such path that it meets, and from no other. When all paths
// have penalties, it takes the second path that it meets. Penalties replace the states Skip and
// Suspect.
type Bitmap struct {
	States
	turn        rotation
	penalty     [maxPaths]uint8
	ignoreMarks bool
}

func newBitmap(n int, o Options) *Bitmap {
	c := &Bitmap{States: newStates(n, o), ignoreMarks: o.IgnoreMarks}
	c.turn = newRotation(n, &c.random)
	return c
}

// Feedback processes a report on packets.
func (c *Bitmap) Feedback(r Report, now clock.Time) {
	c.States.Feedback(r, now)
	if r.Path < 0 || r.Path >= c.n {
		return
	}
	penalty := 0
	switch r.Event {
	case Marked, Trimmed:
		switch {
		case c.ignoreMarks:
		case r.Event == Marked:
			penalty = penaltyMarked
		default:
			penalty = penaltyTrimmed
		}
	case Lost:
		penalty = penaltyTrimmed
	case TimedOut:
		penalty = penaltyTimedOut
	}
	penalty *= min(max(r.Packets, 1), penaltyMost)
	c.penalty[r.Path] = uint8(min(int(c.penalty[r.Path])+penalty, penaltyMost))
}

// Pick returns the path of the next packet or batch.
func (c *Bitmap) Pick(now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	return c.take(c.choose(), now)
}

// choose returns a usable path. At least two paths must be usable.
func (c *Bitmap) choose() int {
	first, spare, behind := -1, -1, c.turn
	for range 2 * c.n {
		p := c.turn.next(&c.random)
		if !c.usable.has(p) {
			continue
		}
		if c.penalty[p] == 0 {
			return p
		}
		if first < 0 {
			first = p
			c.penalty[p]--
		} else if spare < 0 && p != first {
			spare, behind = p, c.turn
		}
	}
	c.turn = behind
	return spare
}
