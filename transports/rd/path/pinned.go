package path

import "railbed/internal/clock"

// Pinned keeps the packets of one key on one path while that is usable, whatever
// is marked there. The seed and the key give an order of the paths, and the first
// usable one is taken: keys whose path is bad spread over the others, the rest
// stay where they are, and all are back when it is good again.
type Pinned struct {
	States
	seed uint64
}

func newPinned(n int, o Options) *Pinned {
	return &Pinned{States: newStates(n, o), seed: mix(o.Seed + golden)}
}

// Pick is the path of key 0: of the peer, when there is one chooser for each.
func (c *Pinned) Pick(now clock.Time) int { return c.PickFor(0, now) }

// PickFor is the path of the next packet or batch of a key.
func (c *Pinned) PickFor(key uint64, now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	drawn := mix(c.seed + key*golden)
	// With one path in MaxPaths usable the draws find it nearly always; the
	// next one in number is as good an answer for the rest.
	for range 8 * c.n {
		if p := within(drawn, c.n); c.usable.has(p) {
			return c.take(p, now)
		}
		drawn = mix(drawn + golden)
	}
	return c.take(c.usable.after(within(drawn, c.n)), now)
}
