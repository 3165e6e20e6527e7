package worker

import (
	"fmt"

	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Wanted is the traffic that the ends of a job should send over all of its operations. The ends are
// the ranks, or, if the job has channels, the channels of each rank in turn.
type Wanted struct {
	// To holds the amounts by sender and receiver.
	To [][]collective.Amount
	// Switch is the number of bytes that each rank sends to the switch that computes an all-reduce.
	Switch uint64
	// Groups holds the number of bytes that each rank of a training job sends within each of its
	// groups.
	Groups []map[string]uint64
}

// Wanted computes the traffic that the job's ranks will send, from the steps that they will do.
func (j Job) Wanted() (*Wanted, error) {
	j, err := j.withDefaults()
	if err != nil {
		return nil, err
	}
	c := j.config(0)
	w := &Wanted{}
	for range len(j.Ranks) * len(channelsOf(c)) {
		w.To = append(w.To, make([]collective.Amount, len(j.Ranks)*len(channelsOf(c))))
	}
	err = j.Work.wanted(&j, c, w)
	if err != nil {
		return nil, fmt.Errorf("count bytes of %s: %w", j.Name, err)
	}
	return w, nil
}

// add adds the amounts that a channel of a rank sends. amounts is by receiving rank.
func (w *Wanted) add(rank, channel, channels int, amounts []collective.Amount) {
	for to, amount := range amounts {
		w.To[rank*channels+channel][to*channels+channel].Add(amount)
	}
}

// operationsOf returns the number of operations of each size.
func operationsOf(c *rank.Config) []int {
	counts := make([]int, len(c.Sizes))
	for _, r := range c.Rounds() {
		counts[r.Size] += r.Before + r.Count
	}
	return counts
}

// Sent returns the total that an end sends to all other ends.
func (w *Wanted) Sent(end int) (sum collective.Amount) {
	for _, amount := range w.To[end] {
		sum.Add(amount)
	}
	return sum
}
