package worker

import (
	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
	"railbed/workloads/training"
)

// algorithms returns the algorithms of a job's collective, by size and lane.
func (c *collectiveConfig) algorithms() ([][]collective.Algorithm, error) {
	all := make([][]collective.Algorithm, len(c.Sizes))
	for i, size := range c.Sizes {
		name := c.Algorithm
		if name == schedule.Auto {
			name = c.Chosen[i]
		}
		for _, channel := range channelsOf(c.Config) {
			made, err := c.algorithm(name, size, channel)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], made)
		}
	}
	return all, nil
}

func (c *collectiveConfig) algorithm(name string, size units.Bytes,
	channel collective.Channel) (collective.Algorithm, error) {
	count := int(size) / c.Type.Size()
	switch {
	case c.Kind == spec.AllToAll && c.Algorithm != schedule.MSCCL && !c.shortExchange(size):
		return collective.NewExchange(collective.ExchangeConfig{Type: c.Type, Channel: channel,
			Matrix: collective.Skewed(c.Ranks, count, c.Skew, c.Seed),
			Phases: map[int][]collective.Phase{c.Rank: c.Phases}})
	case c.Kind == spec.AllReduce && name == schedule.Ring && c.Type == element.Float32 &&
		c.Op == element.Sum && len(c.Channels) == 0 && (c.Lossy() || !isShort(int(size), c.Ranks)):
		return collective.NewRing(collective.Ring{Ranks: c.Ranks, Count: count,
			Droppable: droppable(c.Config)})
	}
	s, err := c.schedule(name)
	if err != nil {
		return nil, err
	}
	return collective.NewProgram(s, collective.Data{Count: count, Type: c.Type, Op: c.Op, Channel: channel})
}

// droppable returns the share of partial sums that may be lost.
func droppable(c *rank.Config) (share units.Ratio) {
	if c.Lossy() {
		share = c.RD.Droppable
	}
	return share
}

// operationAlgorithm returns the algorithm of a training job's operation. If the transport may lose
// partial sums, so may sums of gradients.
func operationAlgorithm(o *training.Operation, c *rank.Config) (collective.Algorithm, error) {
	n, count := len(o.Ranks), int(o.Bytes)/element.Float32.Size()
	switch {
	case o.Kind == training.AllToAll && !isShortExchange(int(o.Bytes), n, element.Float32):
		return collective.NewExchange(collective.ExchangeConfig{Matrix: collective.Even(n, count)})
	case c.Lossy() && o.Gradients():
		return collective.NewRing(collective.Ring{Ranks: n, Count: count, Droppable: droppable(c),
			Scatter: o.Kind == schedule.ReduceScatter})
	}
	s, err := schedule.Make(o.Kind, schedule.Algorithms(o.Kind)[0], n, 0)
	if err != nil {
		return nil, err
	}
	return collective.NewProgram(s, collective.Data{Count: count})
}

// shortExchange reports whether the job's blocks are short enough to be sent at once, without
// permission of the receiver.
func (c *collectiveConfig) shortExchange(size units.Bytes) bool {
	return c.Algorithm == schedule.Direct && c.Skew == 0 && len(c.Channels) == 0 &&
		isShortExchange(int(size), c.Ranks, c.Type)
}

// isShortExchange reports whether an all-to-all sends its blocks without permission of the
// receiver, as a program does: all blocks have the same length and are short. bytes is the size of
// each rank's buffer.
func isShortExchange(bytes, ranks int, t element.Type) bool {
	return isShort(bytes, ranks) && bytes%(ranks*t.Size()) == 0
}

// isShort reports whether a program sends a buffer's messages without permission of the receiver.
// With more than 16 ranks the proof that this is safe takes too long.
func isShort(bytes, ranks int) bool { return collective.IsShort(bytes) && ranks <= 16 }
