package path

import "railbed/internal/clock"

// pinned keeps the packets of one key on one path while that path is usable, whether or not packets
// are marked there. The seed and the key give an order of the paths, and the first usable path is
// taken. So keys of a bad path spread over the other paths, other keys stay on theirs, and all
// return when the path is good again.
type pinned struct {
	States
	seed uint64
}

func newPinned(n int, o Options) *pinned {
	return &pinned{States: newStates(n, o), seed: mix(o.Seed + golden)}
}

// Pick returns the path of key 0; with one chooser for each peer, this is the path of the peer.
func (c *pinned) Pick(now clock.Time) int { return c.PickFor(0, now) }

// PickFor returns the path of the next packet or batch of a key.
func (c *pinned) PickFor(key uint64, now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	drawn := mix(c.seed + key*golden)
	// Even with one usable path in MaxPaths, these draws nearly always find it. Otherwise the next
	// usable path by number is as good.
	for range 8 * c.n {
		if p := within(drawn, c.n); c.usable.has(p) {
			return c.take(p, now)
		}
		drawn = mix(drawn + golden)
	}
	return c.take(c.usable.after(within(drawn, c.n)), now)
}
