package worker

import (
	"fmt"

	"railbed/plan/moe"
	"railbed/workloads/collective"
	"railbed/workloads/training"
)

// Wanted is the traffic that the ends of a job should send over all of its operations. The ends are
// the ranks, or, if the job has channels, the channels of each rank in turn.
type Wanted struct {
	// To is the amounts by sender and receiver.
	To [][]collective.Amount
	// Switch is the bytes that each rank sends to the switch that computes an all-reduce.
	Switch uint64
	// Groups are the bytes that each rank of a training job sends within each of its groups.
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
	for range len(j.Ranks) * len(c.channels()) {
		w.To = append(w.To, make([]collective.Amount, len(j.Ranks)*len(c.channels())))
	}
	switch {
	case j.Messages != nil:
		for _, m := range j.Messages.Messages {
			w.To[m.From][m.To].Add(collective.Amount{Bytes: uint64(m.Bytes), Messages: 1})
		}
	case j.Training != nil:
		err = w.train(j.Training, c)
	case j.Algorithm == InNetwork:
		for _, r := range c.rounds() {
			w.Switch += uint64(c.Sizes[r.size]) * uint64(r.before+r.count)
		}
	case j.MoE != nil:
		w.mix(j.MoE, c)
	default:
		err = w.collective(c)
	}
	if err != nil {
		return nil, fmt.Errorf("count what %s sends: %w", j.Name, err)
	}
	return w, nil
}

// add adds the amounts that a channel of a rank sends. amounts is by receiving rank.
func (w *Wanted) add(rank, channel, channels int, amounts []collective.Amount) {
	for to, amount := range amounts {
		w.To[rank*channels+channel][to*channels+channel].Add(amount)
	}
}

// operations returns the number of operations of each size.
func (c *workerConfig) operations() []int {
	counts := make([]int, len(c.Sizes))
	for _, r := range c.rounds() {
		counts[r.size] += r.before + r.count
	}
	return counts
}

func (w *Wanted) collective(c *workerConfig) error {
	carriers, err := c.carriers()
	if err != nil {
		return err
	}
	for size, operations := range c.operations() {
		for channel, carrier := range carriers[size] {
			for rank := range c.Ranks {
				w.add(rank, channel, len(carriers[size]), carrier.Amounts(rank, operations))
			}
		}
	}
	return nil
}

func (w *Wanted) mix(config *moe.Config, c *workerConfig) {
	all := c.channels()
	for _, words := range Matrices(*config) {
		for i, channel := range all {
			for rank := range c.Ranks {
				w.add(rank, i, len(all), words.Amounts(rank, WordBytes, channel, c.operations()[0]))
			}
		}
	}
}

func (w *Wanted) train(p *training.Program, c *workerConfig) error {
	for range c.Ranks {
		w.Groups = append(w.Groups, map[string]uint64{})
	}
	// Many operations differ only in their ranks.
	type same struct {
		kind, group string
		ranks       int
		bytes       uint64
	}
	carriers := map[same]carrier{}
	uses := p.Uses()
	for i := range p.Operations {
		o := &p.Operations[i]
		key := same{string(o.Kind), o.Group, len(o.Ranks), o.Bytes}
		made, known := carriers[key]
		if !known {
			var err error
			if made, err = operationCarrier(o, c.lossy()); err != nil {
				return err
			}
			carriers[key] = made
		}
		for place, rank := range o.Ranks {
			for to, amount := range made.Amounts(place, int(uses[i])*c.operations()[0]) {
				w.To[rank][o.Ranks[to]].Add(amount)
				w.Groups[rank][o.Group] += amount.Bytes
			}
		}
	}
	return nil
}

// Sent returns the total that an end sends to all other ends.
func (w *Wanted) Sent(end int) (sum collective.Amount) {
	for _, amount := range w.To[end] {
		sum.Add(amount)
	}
	return sum
}
