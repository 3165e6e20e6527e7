package path

import (
	"errors"
	"fmt"

	"railbed/internal/clock"
)

// maxWeight is the largest weight of a path.
const maxWeight = 1 << 16

// weighted holds planned shares. At every moment, each path's picks since the last change of
// weights or usable paths differ from its share by less than one pick. Of the paths that are behind
// their share, it takes the one whose next pick would be late first, as in WF2Q (Bennett and Zhang,
// INFOCOM 1996). Proportionate fairness has the same bound (Baruah, Cohen, Plaxton and Varvel,
// Algorithmica 15, 1996). nginx's smooth weighted round robin deviates further with unequal
// weights.
//
// Marks and trimming do not change shares: the states Skip and Suspect are for choosers without
// planned shares. The shares of bad and denied paths go to the others. A pick takes time in
// proportion to the number of usable paths.
type weighted struct {
	States
	weights []int64
	// lag is how far a path is behind its share, in picks times total.
	lag   []int64
	total int64
	// turns are the usable paths with weight, or all usable paths when none has weight. The earlier
	// path wins a tie, so the seed draws the order.
	turns []int
	order []int
	// known is the value of changes that turns reflect.
	known uint32
}

func newWeighted(n int, o Options) *weighted {
	c := &weighted{
		States: newStates(n, o), weights: make([]int64, n), lag: make([]int64, n),
		turns: make([]int, 0, n), order: make([]int, n),
	}
	for p := range n {
		at := c.random.below(p + 1)
		c.order[p] = c.order[at]
		c.order[at] = p
	}
	c.share(o.Weights)
	return c
}

// checkWeights returns every problem of weights for n paths.
func checkWeights(weights []uint32, n int) error {
	var problems []error
	if len(weights) != n {
		problems = append(problems, fmt.Errorf("%d weights: want one for each of %d paths", len(weights), n))
	}
	total := uint64(0)
	for p, weight := range weights {
		if weight > maxWeight {
			problems = append(problems, fmt.Errorf("weight %d of path %d: want 0 to %d", weight, p,
				maxWeight))
		}
		total += uint64(weight)
	}
	if total == 0 {
		problems = append(problems, errors.New("all weights are 0: want at least one weight above 0"))
	}
	return errors.Join(problems...)
}

// SetWeights gives all paths new shares, which count from now. On an error nothing changes.
func (c *weighted) SetWeights(weights []uint32) error {
	if err := checkWeights(weights, c.n); err != nil {
		return fmt.Errorf("set weights: %w", err)
	}
	c.share(weights)
	return nil
}

// share sets the weights; nil stands for equal ones.
func (c *weighted) share(weights []uint32) {
	for p := range c.weights {
		c.weights[p] = 1
		if weights != nil {
			c.weights[p] = int64(weights[p])
		}
	}
	c.restart()
}

// restart counts shares from now, over the paths that are usable now.
func (c *weighted) restart() {
	c.known, c.total, c.turns = c.changes, 0, c.turns[:0]
	for _, p := range c.order {
		c.lag[p] = 0
		if c.usable.has(p) && c.weights[p] > 0 {
			c.turns = append(c.turns, p)
			c.total += c.weights[p]
		}
	}
	if c.total > 0 {
		return
	}
	for _, p := range c.order {
		if c.usable.has(p) {
			c.turns = append(c.turns, p)
			c.total++
		}
	}
}

// weight is a path's weight among turns, where spares count 1.
func (c *weighted) weight(p int) int64 { return max(c.weights[p], 1) }

// Pick returns the path of the next packet or batch.
func (c *weighted) Pick(now clock.Time) int {
	if p, ok := c.only(now); ok {
		return p
	}
	if c.known != c.changes {
		c.restart()
	}
	best, bestLeft, bestWeight := -1, int64(0), int64(1)
	for _, p := range c.turns {
		weight := c.weight(p)
		c.lag[p] += weight
		// left/weight is the number of picks until the path is one pick behind.
		left := c.total - c.lag[p]
		if c.lag[p] > 0 && (best < 0 || left*bestWeight < bestLeft*weight) {
			best, bestLeft, bestWeight = p, left, weight
		}
	}
	c.lag[best] -= c.total
	return c.take(best, now)
}
