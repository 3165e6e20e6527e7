package schedule

// hyperCube is an all-gather among a power of two ranks, as nccl-tests' hypercube performs it. In round k
// each rank exchanges the 2^k shares that it has with the rank whose number differs in bit k. Each share
// is a separate message, so that channels and slices are possible.
func hyperCube(_ Kind, n, _ int) *Schedule {
	b := build(Schedule{Kind: AllGather, Algorithm: HyperCube, Chunks: n}, n, 1)
	for rank := range n {
		b.keep(rank, rank)
	}
	for distance := 1; distance < n; distance *= 2 {
		for rank := range n {
			for chunk := rank &^ (distance - 1); chunk < rank&^(distance-1)+distance; chunk++ {
				b.send(0, rank, rank^distance, chunk, 1)
			}
		}
		for rank := range n {
			from := rank ^ distance
			for chunk := from &^ (distance - 1); chunk < from&^(distance-1)+distance; chunk++ {
				b.receive(0, from, rank, chunk, 1)
			}
		}
	}
	return b.Schedule
}

// shift is a sendrecv: each rank sends its buffer to the next rank.
func shift(_ Kind, n, _ int) *Schedule {
	b := build(Schedule{Kind: SendReceive, Algorithm: Ring, Chunks: 1}, n, 1)
	if n == 1 {
		b.keep(0, 0)
		return b.Schedule
	}
	for rank := range n {
		b.send(0, rank, (rank+1)%n, 0, 1)
	}
	for rank := range n {
		b.receive(0, before(rank, n), rank, 0, 1)
	}
	return b.Schedule
}

// before returns the rank of n before a rank in a ring: the rank from which it receives in a SendReceive.
func before(rank, n int) int { return (rank + n - 1) % n }
