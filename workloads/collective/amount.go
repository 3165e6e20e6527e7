package collective

import "railbed/plan/schedule"

// Amount is the traffic from a rank to another: bytes of elements, and the messages that carry
// them. A message without bytes counts too: a rank sends one to permit others to write to its
// memory.
type Amount struct{ Bytes, Messages uint64 }

// Add adds another amount.
func (a *Amount) Add(b Amount) { a.Bytes, a.Messages = a.Bytes+b.Bytes, a.Messages+b.Messages }

// times returns the amount of the given number of operations.
func (a Amount) times(operations int) Amount {
	return Amount{a.Bytes * uint64(operations), a.Messages * uint64(operations)}
}

// Amounts returns the traffic from a rank to each other rank in the given number of operations of
// one Runner, counted from the program's steps.
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

// RingAmounts returns the traffic from a rank of a Ring to each other rank, in the given number of
// operations on count elements. scatter is RingConfig.Scatter.
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
	amounts[next].Messages += uint64(total(l.messages(rank)) * operations)
	amounts[prev].Messages += uint64(operations)
	return amounts
}

// Amounts returns the traffic from a rank to each other rank, in the given number of exchanges of
// blocks by a channel. size is the bytes of an element.
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
			one.Messages++ // for the permission to send
		}
		amounts[other] = one.times(operations)
	}
	return amounts
}
