package worker

import (
	"context"

	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// scheduled is a rank's part in a program, with one runner per lane.
type scheduled struct {
	runners []*collective.Runner
	pattern *collective.Pattern
	busy    *rank.Idleness
}

func (c *collectiveConfig) joinProgram(w *rank.Process, tables [][]rank.Rendezvous, b []buffers) (rank.Part,
	error) {
	pattern, err := collective.NewPattern(b[0].program.Pattern(c.Rank))
	if err != nil {
		return nil, err
	}
	s := &scheduled{pattern: pattern, busy: w.Busy()}
	for i, l := range w.Lanes() {
		config := collective.RunnerConfig{
			Endpoint: l.Endpoint(),
			Program:  b[i].program,
			Rank:     c.Rank,
			Peers:    make([]transports.Peer, c.Ranks),
			Memory:   collective.Memory[[]byte]{Input: b[i].input, Output: b[i].output, Work: b[i].work},
			Handles:  make([]collective.Memory[[]byte], c.Ranks),
			Steps:    w.LogSteps(channelName(w, i)),
		}
		for _, other := range config.Program.Partners(c.Rank) {
			if config.Peers[other], err = l.AddPeer(tables[i], other); err != nil {
				return nil, err
			}
			of := &tables[i][other]
			config.Handles[other] = collective.Memory[[]byte]{Input: of.Input, Output: of.Output,
				Work: of.Work}
		}
		runner, err := collective.NewRunner(config)
		if err != nil {
			return nil, err
		}
		s.runners = append(s.runners, runner)
	}
	return s, nil
}

// Fill implements rank.Part. Any runner knows the whole buffers.
func (s *scheduled) Fill(id rank.OperationID) { s.runners[0].Fill(s.pattern, id.Mode, id.Index) }

func (s *scheduled) Operate(ctx context.Context, id rank.OperationID, more bool) (collective.Traffic, error) {
	return atOnce(ctx, s.busy, s.runners,
		func(r *collective.Runner, ctx context.Context) (collective.Traffic, error) {
			if more {
				return r.RunAhead(ctx, id.Mode)
			}
			return r.Run(ctx, id.Mode)
		})
}

func (s *scheduled) Lost() []collective.Loss { return nil }

// Check implements rank.Part. It checks the whole output, so that it also finds what one lane wrote
// wrongly to another lane's part.
func (s *scheduled) Check(id rank.OperationID, _ []collective.Loss) (wrong, short uint64) {
	return s.runners[0].Wrong(s.pattern, id.Mode, id.Index), 0
}
