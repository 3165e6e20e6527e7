package collective

import (
	"cmp"
	"fmt"

	"railbed/internal/element"
	"railbed/plan/schedule"
)

// Phase lists the ranks to which a rank sends at the same time, and the ranks from which it
// receives then.
type Phase struct {
	To   []int `json:"to,omitempty"`
	From []int `json:"from,omitempty"`
}

// Direct returns one phase in which a rank sends to all others at once, as ncclAlltoAll does. It
// begins with the next rank, so that the ranks do not all begin with the same receiver.
func Direct(rank, ranks int) []Phase {
	var all Phase
	for _, p := range Pairwise(rank, ranks) {
		all.To, all.From = append(all.To, p.To...), append(all.From, p.From...)
	}
	return []Phase{all}
}

// Pairwise returns ranks - 1 phases. In each phase a rank sends to one rank and receives from one
// rank: in phase p to rank + p and from rank - p, modulo ranks. This is MPI's pairwise exchange
// (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005).
func Pairwise(rank, ranks int) []Phase {
	var phases []Phase
	for p := 1; p < ranks; p++ {
		phases = append(phases, Phase{To: []int{(rank + p) % ranks}, From: []int{(rank - p + ranks) % ranks}})
	}
	return phases
}

// ExchangeConfig describes an all-to-all.
type ExchangeConfig struct {
	// Matrix is the number of elements that each rank sends to each other; it has a row for each rank.
	Matrix Matrix
	// Type is the elements' type, element.Float32 by default.
	Type element.Type
	// Phases are the phases of some ranks, in order. The others have the phases of Direct. Each other rank
	// occurs once in the To and once in the From of a rank's phases. If a rank sends to another in a
	// phase, the other receives from it in one of its phases.
	Phases map[int][]Phase
	// Channel selects the part of each block that is sent.
	Channel Channel
}

// Exchange is the Algorithm of an all-to-all of blocks of any lengths. A rank enters its next phase when it
// has received all blocks of the current phase and all its sent blocks have arrived. Only then does it
// permit the senders of the next phase to send. So if the phases are matchings, a rank never receives from
// two ranks at once, however far the ranks are apart in the phases. There is no exchange in place: received
// data would overwrite data that is still to be sent.
type Exchange struct {
	config ExchangeConfig
	size   int // of an element
	// outputs and inputs have the places of blocks.
	outputs, inputs prefix
}

// blockSlices returns the number of messages of a block of the given number of bytes.
func blockSlices(bytes int) int { return (bytes + sliceBytes - 1) / sliceBytes }

// slicePart returns the bounds of a slice in a block of the given number of bytes.
func slicePart(bytes, slice int) (from, to int) {
	return slice * sliceBytes, min((slice+1)*sliceBytes, bytes)
}

// NewExchange checks the configuration and returns the algorithm.
func NewExchange(c ExchangeConfig) (*Exchange, error) {
	for from, row := range c.Matrix {
		if len(row) != len(c.Matrix) {
			return nil, fmt.Errorf("make all-to-all: rank %d has elements for %d ranks, want %d", from,
				len(row), len(c.Matrix))
		}
	}
	c.Type = cmp.Or(c.Type, element.Float32)
	if c.Type.Size() == 0 {
		return nil, fmt.Errorf("make all-to-all: unknown type %s", c.Type)
	}
	for rank, phases := range c.Phases {
		if err := checkPhases(phases, rank, len(c.Matrix)); err != nil {
			return nil, fmt.Errorf("make all-to-all: %w", err)
		}
	}
	return &Exchange{config: c, size: c.Type.Size()}, nil
}

// checkPhases checks that each other rank is in the phases once in each direction.
func checkPhases(phases []Phase, rank, ranks int) error {
	to, from := make([]int, ranks), make([]int, ranks)
	for i, p := range phases {
		for _, way := range []struct {
			ranks []int
			count []int
		}{{p.To, to}, {p.From, from}} {
			for _, r := range way.ranks {
				if r < 0 || r >= ranks {
					return fmt.Errorf("phase %d has rank %d, want 0 to %d", i, r, ranks-1)
				}
				way.count[r]++
			}
		}
	}
	for r := range ranks {
		want := 1
		if r == rank {
			want = 0
		}
		if to[r] != want || from[r] != want {
			return fmt.Errorf("rank %d sends %d times to rank %d and receives %d times, want %d", rank, to[r],
				r, from[r], want)
		}
	}
	return nil
}

func (e *Exchange) traits() traits {
	return traits{kind: schedule.AllToAll, ranks: len(e.config.Matrix), data: e.config.Type, op: element.None,
		modes: []Mode{OutOfPlace}}
}

// Partners implements Algorithm.
func (e *Exchange) Partners(rank int) (all []int) {
	for other := range e.config.Matrix {
		if other != rank {
			all = append(all, other)
		}
	}
	return all
}

// Lengths implements Algorithm.
func (e *Exchange) Lengths(rank int) Memory[int] {
	return Memory[int]{Input: e.size * e.config.Matrix.InputLen(rank),
		Output: e.size * e.config.Matrix.OutputLen(rank)}
}

// buffer implements Algorithm.
func (e *Exchange) buffer(rank int, _ Mode, b schedule.Buffer) (place, int) {
	lengths := e.Lengths(rank)
	return place{b, 0, lengths.of(b)}, 0
}

// blocks has the places of the blocks that a rank sends and receives, of the channel's part, in bytes.
type blocks struct {
	// sources has the blocks by receiver, and targets their places at the receivers.
	sources, targets []place
	received         []place // by sender
}

// blocks returns the places of a rank's blocks. If ranks are asked for in order, it takes a time in
// proportion to the number of blocks.
func (e *Exchange) blocks(rank int) (b blocks) {
	m := e.config.Matrix
	part := func(buffer schedule.Buffer, at, elements int) place {
		first, behind := e.config.Channel.Part(0, elements)
		return place{buffer, at + first, at + behind}.times(e.size)
	}
	before, in, out := e.outputs.before(rank, len(m), m.addRow), 0, 0
	for other, elements := range m[rank] {
		b.sources = append(b.sources, part(schedule.Input, in, elements))
		b.targets = append(b.targets, part(schedule.Output, before[other], elements))
		b.received = append(b.received, part(schedule.Output, out, m[other][rank]))
		in, out = in+elements, out+m[other][rank]
	}
	return b
}

// actions implements Algorithm. A rank does one thing after the other in a phase: it permits the senders to
// send, sends, and waits.
func (e *Exchange) actions(rank int, _ Mode, add func(action)) (threads []int) {
	phases, given := e.config.Phases[rank]
	if !given {
		phases = Direct(rank, len(e.config.Matrix))
	}
	blocks := e.blocks(rank)
	last := 0 // action
	do := func(a action) int {
		add(a)
		last++
		return last - 1
	}
	before := do(action{op: schedule.Copy, source: blocks.sources[rank], target: blocks.targets[rank],
		taken: noStep, arrived: noStep})
	inOrder := func(a action) int {
		a.after = append(a.after, before)
		before = do(a)
		return before
	}
	for i, p := range phases {
		end := action{op: await, taken: i, arrived: noStep}
		for _, from := range p.From {
			if blocks.received[from].len() > 0 {
				inOrder(action{op: permit, peer: from, taken: noStep, arrived: noStep})
			}
		}
		for _, to := range p.To {
			for _, a := range messages(schedule.Send, to, blocks.sources[to], blocks.targets[to]) {
				end.unsent = append(end.unsent, inOrder(a))
			}
		}
		for _, from := range p.From {
			for _, a := range messages(schedule.Receive, from, place{}, blocks.received[from]) {
				end.after = append(end.after, do(a))
			}
		}
		inOrder(end)
	}
	return []int{len(phases)}
}

// messages returns the actions that send a block, or receive a block, which has no source here.
func messages(op schedule.Op, peer int, source, target place) (all []action) {
	for slice := range blockSlices(target.len()) {
		first, behind := slicePart(target.len(), slice)
		out := place{target.buffer, target.from + first, target.from + behind}
		a := action{op: op, peer: peer, target: out, landed: out, message: true, imm: uint32(slice),
			taken: noStep, arrived: noStep}
		if op == schedule.Send {
			a.source = place{source.buffer, source.from + first, source.from + behind}
		}
		all = append(all, a)
	}
	return all
}

// wrong implements Algorithm.
func (e *Exchange) wrong(p *Pattern, rank int, output []byte, _, iteration int, _ []Loss) (wrong,
	short uint64) {
	m := e.config.Matrix
	inputs := e.inputs.before(rank, len(m), m.addColumn)
	for from, row := range m {
		block := e.size * row[rank]
		wrong += p.WrongOf(from, output[:block], iteration, inputs[from])
		output = output[block:]
	}
	return wrong, 0
}
