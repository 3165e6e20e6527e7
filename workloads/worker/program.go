package worker

import (
	"context"

	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/collective/schedule"
)

// scheduled is a part in a program.
type scheduled struct {
	buffers
	runner  *collective.Runner
	pattern *collective.Pattern
}

// programShape makes the program of a collective of so many elements, and the shape of this
// rank's memory.
func (c *workerConfig) programShape(count int) (shape, error) {
	s, err := c.schedule()
	if err != nil {
		return shape{}, err
	}
	return programShape(s, c.Rank, collective.Data{Count: count, Type: c.Type, Op: c.Op})
}

func programShape(s *schedule.Schedule, rank int, d collective.Data) (shape, error) {
	p, err := collective.NewProgram(s, d)
	if err != nil {
		return shape{}, err
	}
	size := p.Data().Type.Size()
	span := func(b schedule.Buffer) int {
		from, to := p.Span(rank, b)
		return size * (to - from)
	}
	return shape{input: span(schedule.Input), output: span(schedule.Output), work: size * p.WorkLen(rank), program: p}, nil
}

func (w *rank) joinProgram(table []rendezvous, b buffers) (part, error) {
	c := &w.config
	config := collective.RunnerConfig{
		Endpoint: w.endpoint, Program: b.program, Rank: c.Rank, Peers: make([]transports.Peer, c.Ranks),
		Memory:  collective.Memory[[]byte]{Input: b.input, Output: b.output, Work: b.work},
		Handles: make([]collective.Memory[[]byte], c.Ranks),
	}
	for _, other := range b.program.Partners(c.Rank) {
		peer, err := w.addPeer(table, other)
		if err != nil {
			return nil, err
		}
		config.Peers[other] = peer
		config.Handles[other] = collective.Memory[[]byte]{Input: table[other].Input, Output: table[other].Output, Work: table[other].Work}
	}
	runner, err := collective.NewRunner(config)
	if err != nil {
		return nil, err
	}
	pattern, err := collective.NewPattern(b.program.Pattern(c.Rank))
	if err != nil {
		return nil, err
	}
	return &scheduled{b, runner, pattern}, nil
}

func (s *scheduled) fill(id operationID) { s.runner.Fill(s.pattern, id.Mode, id.Index) }

func (s *scheduled) operate(ctx context.Context, id operationID) (collective.Traffic, error) {
	return s.runner.Run(ctx, id.Mode)
}

func (s *scheduled) lost() []collective.Loss { return nil }

func (s *scheduled) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	return s.runner.Wrong(s.pattern, id.Mode, id.Index), 0
}
