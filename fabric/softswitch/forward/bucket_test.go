package forward

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/testkit/calculustest"
)

// TestBucketKeepsItsCurve: whatever the requests, a bucket of b tokens and r a second admits at
// most b + r*t in any interval (Cruz 1991). It refuses nothing of traffic that conforms to this
// curve. Source: Le Boudec and Thiran, section 1.2.2: the greedy shaper of such a curve delays no
// conformant flow. The buckets are those for ICMP errors and for floods.
func TestBucketKeepsItsCurve(t *testing.T) {
	for name, c := range map[string]struct {
		rate, depth int
		tokens      []int // requested at once
	}{
		"icmp errors": {errorsPerSecond, errorsAtOnce, []int{1}},
		"floods":      {copiesPerSecond, copiesAtOnce, []int{1, 3, 40, 127}},
	} {
		random := rand.New(rand.NewPCG(5, 6))
		// Three times too many, in bursts with pauses between them.
		b := newBucket(c.rate, c.depth)
		var passed calculustest.Trace
		now, asked := clock.Time(0), 0
		for asked < 8*c.depth {
			tokens := c.tokens[random.IntN(len(c.tokens))]
			asked += tokens
			if b.take(now, tokens) {
				passed.Add(now, int64(tokens))
			}
			now = now.Add(time.Duration(random.ExpFloat64() * float64(tokens) / float64(3*c.rate) * 1e9))
			if random.IntN(5000) == 0 {
				now = now.Add(time.Duration(random.IntN(2 * c.depth * 1e9 / c.rate)))
			}
		}
		if got := passed.Burst(float64(c.rate)); got > float64(c.depth)+1e-3 || got < 0.99*float64(c.depth) {
			t.Errorf("%s: %v tokens at once and %d a second went, want %d", name, got, c.rate, c.depth)
		}

		b = newBucket(c.rate, c.depth)
		for i, a := range calculustest.Source(random, float64(c.depth), float64(c.rate), 50_000,
			c.tokens...) {
			if !b.take(a.At, a.Bytes) {
				t.Errorf("%s: refused %d tokens at %v, the %d-th time, to who keeps to the curve", name,
					a.Bytes, time.Duration(a.At), i)
				break
			}
		}
	}
}
