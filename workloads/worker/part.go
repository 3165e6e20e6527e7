package worker

import (
	"context"

	"railbed/plan/schedule"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// buffers are a rank's memory.
type buffers = collective.Memory[[]byte]

// allocate makes memory of the given lengths.
func allocate(lengths collective.Memory[int]) buffers {
	return buffers{Input: make([]byte, lengths.Input), Output: make([]byte, lengths.Output),
		Work: make([]byte, lengths.Work)}
}

// allocateLanes makes memory that is large enough for a rank's part in each of the algorithms, which are by
// size and lane. All lanes share one input and one output.
func allocateLanes(rank int, all [][]collective.Algorithm) []buffers {
	var most collective.Memory[int]
	work := make([]int, len(all[0]))
	for _, lanes := range all {
		for lane, of := range lanes {
			lengths := of.Lengths(rank)
			most.Input, most.Output = max(most.Input, lengths.Input), max(most.Output, lengths.Output)
			work[lane] = max(work[lane], lengths.Work)
		}
	}
	memory, shared := make([]buffers, len(work)), allocate(most)
	for lane := range memory {
		memory[lane] = buffers{Input: shared.Input, Output: shared.Output, Work: make([]byte, work[lane])}
	}
	return memory
}

// view returns the part of memory that has the given lengths.
func view(b buffers, lengths collective.Memory[int]) buffers {
	return buffers{Input: b.Input[:lengths.Input], Output: b.Output[:lengths.Output],
		Work: b.Work[:lengths.Work]}
}

// part is a rank's part in a collective, with one runner per lane.
type part struct {
	runners []*collective.Runner
	pattern *collective.Pattern
	busy    *rank.Idleness
}

// join makes a rank's part in the algorithms of its lanes from the tables of all ranks.
func join(w *rank.Process, tables [][]rank.Rendezvous, memory []buffers,
	lanes []collective.Algorithm) (*part, error) {
	p := &part{busy: w.Busy()}
	for i, l := range w.Lanes() {
		of := func(other *rank.Rendezvous) buffers {
			return buffers{Input: other.Input, Output: other.Output, Work: other.Work}
		}
		r, err := newRunner(l, tables[i], of, collective.RunnerConfig{
			Endpoint:  l.Endpoint(),
			Algorithm: lanes[i],
			Rank:      w.Config.Rank,
			Memory:    view(memory[i], lanes[i].Lengths(w.Config.Rank)),
			Steps:     w.LogSteps(channelName(w, i)),
		})
		if err != nil {
			return nil, err
		}
		p.runners = append(p.runners, r)
	}
	var err error
	p.pattern, err = collective.NewPattern(p.runners[0].Pattern())
	return p, err
}

// newRunner makes a runner whose ranks are the process's ranks. It adds the peers and their handles, which
// are in a lane's table.
func newRunner(l *rank.Lane, table []rank.Rendezvous, handles func(*rank.Rendezvous) buffers,
	config collective.RunnerConfig) (_ *collective.Runner, err error) {
	config.Peers, config.Handles = make([]transports.Peer, len(table)), make([]buffers, len(table))
	for _, other := range config.Algorithm.Partners(config.Rank) {
		if config.Peers[other], err = l.AddPeer(table, other); err != nil {
			return nil, err
		}
		config.Handles[other] = handles(&table[other])
	}
	return collective.NewRunner(config)
}

// Fill implements rank.Part. Any runner knows the whole buffers.
func (p *part) Fill(id rank.OperationID) { p.runners[0].Fill(p.pattern, id.Mode, id.Index) }

func (p *part) Operate(ctx context.Context, id rank.OperationID, more bool) (collective.Traffic, error) {
	return atOnce(ctx, p.busy, p.runners,
		func(r *collective.Runner, ctx context.Context) (collective.Traffic, error) {
			if more {
				return r.RunAhead(ctx, id.Mode)
			}
			return r.Run(ctx, id.Mode)
		})
}

// Lost implements rank.Part. Only an algorithm with one lane loses anything.
func (p *part) Lost() []collective.Loss { return p.runners[0].Lost() }

// Check implements rank.Part. It checks the whole output, so that it also finds what one lane wrote
// wrongly to another lane's part.
func (p *part) Check(id rank.OperationID, lost []collective.Loss) (wrong, short uint64) {
	return p.runners[0].Wrong(p.pattern, id.Mode, id.Index, lost)
}

// phases returns the phases of rank i in an all-to-all: the plan's if its rates were computed in
// advance, else the algorithm's. Pairs that a plan leaves out, such as ranks of one node, come
// last, all at once.
func (j Job) phases(i int) []collective.Phase {
	n := len(j.Ranks)
	switch {
	case j.Algorithm == schedule.Direct:
		return collective.Direct(i, n)
	case !j.offline():
		return collective.Pairwise(i, n)
	}
	planned := make([]collective.Phase, len(j.Rates.Phases)+1)
	at := func(from, to int) *collective.Phase {
		if p := j.Rates.Phase(from, to); p >= 0 {
			return &planned[p]
		}
		return &planned[len(planned)-1]
	}
	for _, p := range collective.Pairwise(i, n) { // in this order if a phase has several
		to, from := at(i, p.To[0]), at(p.From[0], i)
		to.To, from.From = append(to.To, p.To...), append(from.From, p.From...)
	}
	return planned
}
