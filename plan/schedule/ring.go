package schedule

// ring is the ring algorithms (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009): n-1 steps in which a partial sum of
// each chunk goes to the next rank, then n-1 in which the results do. A reduce-scatter
// has the first ones alone, an all-gather the others.
func ring(kind Kind, n int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: "ring", Chunks: n}, n, 1)
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

// chunks are so many of them, and part is what goes around together.
type (
	chunks struct{ first, count int }
	part   []chunks
)

// around sends the parts of some ranks around among them, one of each rank, in one step
// less than there are: first each rank sends to the next one the part of its own number
// plus ahead, then always the one before. So, with -1, what is combined on its way begins
// behind the rank whose part it is, and ends there; and, with 0, what is received begins
// there.
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

// chain sends the whole buffer from rank to rank, from the root on or to it: the ring of
// NCCL's broadcast and reduce, which its slices fill as a pipeline.
func chain(kind Kind, n, root int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: "ring", Root: root, Chunks: 1}, n, 1)
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

// binomial is a binomial tree from the root or to it: log2 n rounds, in each of which
// those who have the buffer send it to as many others (Thakur, Rabenseifner and Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005).
func binomial(kind Kind, n, root int) *Schedule {
	b := build(Schedule{Kind: kind, Algorithm: "binomial", Root: root, Chunks: 1}, n, 1)
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

// ceilPower is the least power of two that is at least n.
func ceilPower(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// dissemination is the barrier of Hensgen, Finkel and Manber ("Two algorithms for
// barrier synchronization", 1988): in round k each rank tells the one 2^k behind it.
func dissemination(n int) *Schedule {
	b := build(Schedule{Kind: Barrier, Algorithm: "dissemination"}, n, 1)
	for distance := 1; distance < n; distance *= 2 {
		for rank := range n {
			b.add(rank, 0, Step{Op: Send, Peer: (rank + distance) % n})
			b.add(rank, 0, Step{Op: Receive, Peer: (rank - distance + n) % n, Target: Output})
		}
	}
	return b.Schedule
}
