package collective

import "railbed/plan/schedule"

// Amount is what a rank sends another one: bytes of elements, and the messages in which they go.
// Messages without a byte count, too: a rank sends one to say that others may write to its memory.
type Amount struct{ Bytes, Messages uint64 }

// Add adds another amount.
func (a *Amount) Add(b Amount) { a.Bytes, a.Messages = a.Bytes+b.Bytes, a.Messages+b.Messages }

// times is the amount of so many operations.
func (a Amount) times(operations int) Amount {
	return Amount{a.Bytes * uint64(operations), a.Messages * uint64(operations)}
}

// Amounts counts what a rank sends each other one in so many operations of one Runner, from the
// program's steps.
func (p *Program) Amounts(rank, operations int) []Amount {
	amounts := make([]Amount, len(p.schedule.Ranks))
	leaves := operations
	if p.eager {
		leaves = min(operations, 1)
	}
	asked := make([]bool, len(amounts))
	for _, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			switch step := &t.Steps[i]; {
			case step.Op == schedule.Send:
				for slice := range p.slices {
					if from, to := p.source(step, slice); isMessage(step, from, to) {
						amounts[step.Peer].Add(Amount{uint64((to - from) * p.data.Type.Size()),
							1}.times(operations))
					}
				}
			case takes(step) && !asked[step.Peer]:
				asked[step.Peer] = true
				amounts[step.Peer].Messages += uint64(leaves)
			}
		}
	}
	return amounts
}

// RingAmounts counts what a rank of a Ring sends each other one in so many operations on count
// elements; scatter is RingConfig.Scatter.
func RingAmounts(rank, ranks, count int, scatter bool, operations int) []Amount {
	amounts := make([]Amount, ranks)
	if ranks == 1 {
		return amounts
	}
	l := newLayout(ranks, count, floatSize)
	l.scatter = scatter
	next, prev := (rank+1)%ranks, (rank+ranks-1)%ranks
	for step := range l.steps() {
		from, to := l.bounds(l.sends(rank, step))
		amounts[next].Bytes += uint64((to - from) * floatSize * operations)
	}
	amounts[next].Messages += uint64(l.messages(rank) * operations)
	amounts[prev].Messages += uint64(operations)
	return amounts
}

// Amounts counts what a rank sends each other one in so many exchanges of blocks of elements of a
// size, by a channel.
func (m Matrix) Amounts(rank, size int, c Channel, operations int) []Amount {
	amounts := make([]Amount, len(m))
	part := func(from, to int) int {
		first, behind := c.Part(0, m[from][to])
		return size * (behind - first)
	}
	for other := range m {
		if other == rank {
			continue
		}
		out := part(rank, other)
		one := Amount{uint64(out), uint64(blockSlices(out))}
		if part(other, rank) > 0 {
			one.Messages++ // which gives leave
		}
		amounts[other] = one.times(operations)
	}
	return amounts
}
