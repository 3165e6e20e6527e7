package worker

import (
	"context"

	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/collective/schedule"
)

// Root is the rank from which a broadcast comes and to which a reduce goes.
const Root = 0

// scheduled is a part in a program.
type scheduled struct {
	buffers
	runner  *collective.Runner
	kind    schedule.Kind
	ranks   int
	pattern *collective.Pattern
}

// allocateProgram makes the program of a collective of so many elements and this rank's
// memory.
func (c *workerConfig) allocateProgram(count int) (buffers, error) {
	s, err := schedule.Make(schedule.Kind(c.Kind), c.Algorithm, c.Ranks, Root)
	if err != nil {
		return buffers{}, err
	}
	p, err := collective.NewProgram(s, count)
	if err != nil {
		return buffers{}, err
	}
	span := func(b schedule.Buffer) []float32 {
		from, to := p.Span(c.Rank, b)
		return make([]float32, to-from)
	}
	return buffers{input: span(schedule.Input), output: span(schedule.Output), work: make([]float32, p.WorkLen(c.Rank)), program: p}, nil
}

func (w *rank) joinProgram(table []rendezvous, b buffers) (part, error) {
	c := &w.config
	config := collective.RunnerConfig{
		Endpoint: w.endpoint, Program: b.program, Rank: c.Rank, Peers: make([]transports.Peer, c.Ranks),
		Memory:  collective.Memory[[]float32]{Input: b.input, Output: b.output, Work: b.work},
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
	return &scheduled{b, runner, schedule.Kind(c.Kind), c.Ranks, collective.NewPattern(c.Rank, c.Ranks)}, nil
}

func (s *scheduled) fill(id operationID) {
	input, from := s.runner.Buffer(id.Mode, schedule.Input)
	s.pattern.FillFrom(input, id.Index, from)
}

func (s *scheduled) operate(ctx context.Context, id operationID) (collective.Traffic, error) {
	return s.runner.Run(ctx, id.Mode)
}

func (s *scheduled) lost() []collective.Loss { return nil }

func (s *scheduled) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	output, from := s.runner.Buffer(id.Mode, schedule.Output)
	switch s.kind {
	case schedule.Broadcast:
		return s.pattern.WrongOf(Root, output, id.Index, from), 0
	case schedule.AllGather:
		for rank := range s.ranks {
			from, to := s.program.Span(rank, schedule.Input)
			wrong += s.pattern.WrongOf(rank, output[from:to], id.Index, from)
		}
		return wrong, 0
	}
	return s.pattern.WrongFrom(output, id.Index, from), 0
}
