package worker

import (
	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/workloads/collective"
	"railbed/workloads/training"
)

// carrier carries out a collective of one size in one lane.
type carrier interface {
	// shape returns the memory that a rank needs for it.
	shape(rank int) shape
	// Amounts returns what a rank sends to each other rank in the given number of operations.
	Amounts(rank, operations int) []collective.Amount
}

// programCarrier is a program, run by a collective.Runner.
type programCarrier struct{ *collective.Program }

func (p programCarrier) shape(rank int) shape {
	size := p.Data().Type.Size()
	span := func(b schedule.Buffer) int {
		from, to := p.Span(rank, b)
		return size * (to - from)
	}
	return shape{input: span(schedule.Input), output: span(schedule.Output), work: size * p.WorkLen(rank),
		program: p.Program}
}

// exchangeCarrier is a collective.AllToAll of elements of size bytes.
type exchangeCarrier struct {
	matrix  collective.Matrix
	size    int
	channel collective.Channel
}

func (e exchangeCarrier) shape(rank int) shape {
	return shape{input: e.size * e.matrix.InputLen(rank), output: e.size * e.matrix.OutputLen(rank)}
}

func (e exchangeCarrier) Amounts(rank, operations int) []collective.Amount {
	return e.matrix.Amounts(rank, e.size, e.channel, operations)
}

// ringCarrier is a collective.Ring over a buffer of the given bytes.
type ringCarrier struct {
	ranks, bytes int
	scatter      bool
}

func (r ringCarrier) shape(int) shape { return shape{input: r.bytes, output: r.bytes} }

func (r ringCarrier) Amounts(rank, operations int) []collective.Amount {
	return collective.RingAmounts(rank, r.ranks, r.bytes/element.Float32.Size(), r.scatter, operations)
}

// carriers returns the carriers of a job's collective, by size and lane.
func (c *collectiveConfig) carriers() ([][]carrier, error) {
	all := make([][]carrier, len(c.Sizes))
	for i, size := range c.Sizes {
		algorithm := c.Algorithm
		if algorithm == Auto {
			algorithm = c.Chosen[i]
		}
		for _, channel := range channelsOf(c.Config) {
			made, err := c.carrier(algorithm, size, channel)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], made)
		}
	}
	return all, nil
}

func (c *collectiveConfig) carrier(algorithm string, size units.Bytes, channel collective.Channel) (carrier,
	error) {
	switch {
	case c.Kind == AllToAll && c.Algorithm != MSCCL && !c.shortExchange(size):
		return exchangeCarrier{c.matrix(size), c.Type.Size(), channel}, nil
	case c.Kind == AllReduce && algorithm == Ring && c.Type == element.Float32 && c.Op == element.Sum &&
		len(c.Channels) == 0 && (c.Lossy() || !isShort(int(size), c.Ranks)):
		return ringCarrier{ranks: c.Ranks, bytes: int(size)}, nil
	}
	s, err := c.schedule(algorithm)
	if err != nil {
		return nil, err
	}
	p, err := collective.NewProgram(s,
		collective.Data{Count: int(size) / c.Type.Size(), Type: c.Type, Op: c.Op, Channel: channel})
	return programCarrier{p}, err
}

// operationCarrier returns the carrier of a training job's operation. If lossy is true, the
// operation may lose partial sums of gradients.
func operationCarrier(o *training.Operation, lossy bool) (carrier, error) {
	n, count := len(o.Ranks), int(o.Bytes)/element.Float32.Size()
	switch {
	case o.Kind == training.AllToAll && !isShortExchange(int(o.Bytes), n, element.Float32):
		return exchangeCarrier{matrix: collective.Even(n, count), size: element.Float32.Size()}, nil
	case lossy && o.Gradients():
		return ringCarrier{ranks: n, bytes: int(o.Bytes), scatter: o.Kind == schedule.ReduceScatter}, nil
	}
	s, err := schedule.Make(o.Kind, schedule.Algorithms(o.Kind)[0], n, 0)
	if err != nil {
		return nil, err
	}
	p, err := collective.NewProgram(s, collective.Data{Count: count})
	return programCarrier{p}, err
}
