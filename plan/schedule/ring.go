package schedule

// ring holds the ring algorithms (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", 2009). In n-1 steps a partial sum of each chunk goes to the next rank.
// In n-1 more steps the results do. A reduce-scatter has the first half only, an all-gather the
// second.
func ring(kind Kind, n, _ int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: Ring, Chunks: n}, n, 1)
	if kind == AllGather {
		for rank := range n {
			b.keep(rank, rank)
		}
	}
	ranks, parts := make([]int, n), make([]part, n)
	for i := range n {
		ranks[i], parts[i] = i, part{{i, 1}}
	}
	if kind != AllGather {
		b.around(ranks, parts, -1, (*builder).combine)
	}
	if kind != ReduceScatter {
		b.around(ranks, parts, 0, (*builder).receive)
	}
	if n == 1 {
		b.keep(0, 0)
	}
	return b.Schedule
}

// chunks is a range of chunks. part is the set of ranges that is passed around together.
type (
	chunks struct{ first, count int }
	part   []chunks
)

// around passes the parts of some ranks around the ring of these ranks, one part per rank, in one
// step less than there are ranks. In the first step each rank sends to the next rank the part of
// its own number plus ahead. In each following step it sends the part before the one it sent last.
// With ahead -1 a part that is combined on its way starts at the rank after its own and ends at its
// own rank. With ahead 0 a part that is received starts at its own rank.
func (b *builder) around(ranks []int, parts []part, ahead int,
	take func(b *builder, thread, from, to, chunk, count int)) {
	n := len(ranks)
	for step := range n - 1 {
		for i, rank := range ranks {
			for _, c := range parts[(i+ahead-step+2*n)%n] {
				b.send(0, rank, ranks[(i+1)%n], c.first, c.count)
			}
		}
		for i, rank := range ranks {
			before := (i + n - 1) % n
			for _, c := range parts[(before+ahead-step+2*n)%n] {
				take(b, 0, ranks[before], rank, c.first, c.count)
			}
		}
	}
}

// chain sends the whole buffer from rank to rank, from the root or to it. It is the ring of NCCL's
// broadcast and reduce, whose slices form a pipeline.
func chain(kind Kind, n, root int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: Ring, Root: root, Chunks: 1}, n, 1)
	if kind == Broadcast || n == 1 {
		b.keep(root, 0)
	}
	for i := range n - 1 {
		from, to := (root+i)%n, (root+i+1)%n
		if kind == Reduce {
			from, to = to, (to+1)%n
		}
		b.send(0, from, to, 0, 1)
		if kind == Reduce {
			b.combine(0, from, to, 0, 1)
		} else {
			b.receive(0, from, to, 0, 1)
		}
	}
	return b.Schedule
}

// binomial is a binomial tree from the root or to it. It has log2 n rounds. In each round the ranks
// that have the buffer send it to as many others (Thakur, Rabenseifner and Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005).
func binomial(kind Kind, n, root int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: Binomial, Root: root, Chunks: 1}, n, 1)
	if kind == Broadcast || n == 1 {
		b.keep(root, 0)
	}
	at := func(place int) int { return (place + root) % n }
	if kind == Broadcast {
		for distance := ceilPower(n) / 2; distance > 0; distance /= 2 {
			for v := 0; v+distance < n; v += 2 * distance {
				b.send(0, at(v), at(v+distance), 0, 1)
				b.receive(0, at(v), at(v+distance), 0, 1)
			}
		}
		return b.Schedule
	}
	for distance := 1; distance < n; distance *= 2 {
		for v := 0; v+distance < n; v += 2 * distance {
			b.send(0, at(v+distance), at(v), 0, 1)
			b.combine(0, at(v+distance), at(v), 0, 1)
		}
	}
	return b.Schedule
}

// ceilPower returns the least power of two that is at least n.
func ceilPower(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// dissemination is the barrier of Hensgen, Finkel and Manber ("Two algorithms for barrier
// synchronization", 1988). In round k each rank sends a message to the rank 2^k behind it.
func dissemination(_ Kind, n, _ int) *Schedule {
	b := build(Schedule{Kind: Barrier, Algorithm: Dissemination}, n, 1)
	for distance := 1; distance < n; distance *= 2 {
		for rank := range n {
			b.add(rank, 0, Step{Op: Send, Peer: (rank + distance) % n})
			b.add(rank, 0, Step{Op: Receive, Peer: (rank - distance + n) % n, Target: Output})
		}
	}
	return b.Schedule
}
