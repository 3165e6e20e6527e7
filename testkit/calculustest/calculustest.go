// Package calculustest has the curves of network calculus with which tests check token buckets,
// queues and links. (Sigma, rho) comes from Cruz, A Calculus for Network Delay, Part I, IEEE
// Transactions on Information Theory 37(1), 1991. Theorems are cited by their number in Le Boudec
// and Thiran, Network Calculus, LNCS 2050, 2001.
package calculustest

import (
	"math"
	"math/rand/v2"
	"time"

	"railbed/internal/clock"
)

// Trace is a sequence of amounts with their times, in bytes or packets, in order.
type Trace struct {
	at     []clock.Time
	amount []int64
}

// Add adds an amount that arrives at one moment.
func (t *Trace) Add(at clock.Time, amount int64) {
	t.at, t.amount = append(t.at, at), append(t.amount, amount)
}

// Len returns the number of amounts.
func (t *Trace) Len() int { return len(t.at) }

// Burst returns the least b such that no interval [s, t] has more than b + rate*(t-s), with the
// rate in amounts a second. It is the highest level of a leaky bucket of that rate (section 1.2.2).
// Burst computes it from the definition, over all pairs of a beginning and an end; it only keeps
// the beginning that gives the largest value.
func (t *Trace) Burst(rate float64) (burst float64) {
	sum, least := 0.0, math.Inf(1)
	for i, amount := range t.amount {
		due := rate * time.Duration(t.at[i]).Seconds()
		least = min(least, sum-due)
		sum += float64(amount)
		burst = max(burst, sum-due-least)
	}
	return burst
}

// Arrival is a packet sent by a source.
type Arrival struct {
	At    clock.Time
	Bytes int
}

// Source returns packets of the given lengths, such that no interval has more than burst + rate*t
// bytes, with the rate in bytes a second. It sends as early as this allows, except for some random
// pauses. After a pause it may send up to a burst at once again.
func Source(random *rand.Rand, burst, rate float64, packets int, lengths ...int) []Arrival {
	arrivals := make([]Arrival, 0, packets)
	level, now := 0.0, clock.Time(0) // of a bucket that leaks at the rate
	for range packets {
		length := lengths[random.IntN(len(lengths))]
		wait := time.Duration(math.Ceil(max(0, level+float64(length)-burst) / rate * 1e9))
		if wait > 0 && random.IntN(100) == 0 {
			wait += time.Duration(random.Int64N(int64(2 * burst / rate * 1e9)))
		}
		now = now.Add(wait)
		level = max(0, level-rate*wait.Seconds()) + float64(length)
		arrivals = append(arrivals, Arrival{At: now, Bytes: length})
	}
	return arrivals
}
