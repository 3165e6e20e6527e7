package schedule

import "math/bits"

// Share is the part Num/Den of the whole buffer.
type Share struct{ Num, Den int }

// Of returns the share of a number of bytes, rounded up.
func (s Share) Of(bytes uint64) uint64 {
	return (bytes*uint64(s.Num) + uint64(s.Den) - 1) / uint64(s.Den)
}

// Sent returns the bytes that a rank sends in one operation of an algorithm, as a share of the
// buffer. It uses the closed formula of the algorithm's paper and no schedule. With S bytes and n
// ranks a rank sends
//
//   - ring, hierarchical: 2(n-1)/n S for an all-reduce, and (n-1)/n S for an all-gather or a
//     reduce-scatter. For a broadcast or a reduce it is S, and nothing from the rank at the end of
//     the chain;
//   - halving-doubling: 2(p-1)/p S, where p is the largest power of two up to n. Of the first
//     2(n-p) ranks the even ones send S, and the odd ones S more;
//   - recursive-doubling: log2(p) S, with the same additions for the same ranks;
//   - tree: S/2 for each neighbour in each of two trees;
//   - binomial: S for each child for a broadcast, and S from all but the root for a reduce. For a
//     gather or a scatter it is S/n for each rank below the sender in the tree, and in a gather S/n
//     for the sender itself;
//   - direct: (n-1)/n S from the root of a scatter, and S/n from each other rank of a gather;
//   - hypercube: (n-1)/n S. A rank sends S/n, then 2S/n and so on up to S/2;
//   - a sendrecv by ring: S.
func Sent(k Kind, algorithm string, ranks, rank, root int) Share {
	sent := find(k, algorithm).sent
	if sent == nil && len(algorithms[k]) > 0 {
		sent = algorithms[k][0].sent
	}
	if ranks == 1 || sent == nil {
		return Share{0, 1}
	}
	return sent(ranks, rank, (rank-root+ranks)%ranks)
}

func others(n, _, _ int) Share { return Share{n - 1, n} }

func twice(n, _, _ int) Share { return Share{2 * (n - 1), n} }

func sentByTree(n, rank, _ int) Share {
	return Share{neighbours(0, rank, n) + neighbours(1, rank, n), 2}
}

func sentByHalving(n, rank, _ int) Share {
	p := 1 << (bits.Len(uint(n)) - 1)
	return foldedShare(Share{2 * (p - 1), p}, rank, n-p)
}

func sentByDoubling(n, rank, _ int) Share {
	rounds := bits.Len(uint(n)) - 1
	return foldedShare(Share{rounds, 1}, rank, n-1<<rounds)
}

// foldedShare returns the share of a rank if extra ranks take part through other ranks.
func foldedShare(s Share, rank, extra int) Share {
	switch {
	case rank >= 2*extra:
		return s
	case rank%2 == 0:
		return Share{1, 1}
	}
	return Share{s.Num + s.Den, s.Den}
}

// binomialChildren returns the number of children of a position in a binomial tree of n positions.
// Each bit below its lowest set bit gives a child, if that position is within the tree.
func binomialChildren(place, n int) (children int) {
	for bit := 1; bit < n && place&bit == 0; bit *= 2 {
		if place+bit < n {
			children++
		}
	}
	return children
}

// sharesPassed returns the number of shares that a position of a gather or a scatter sends.
func sharesPassed(k Kind, algorithm string, place, n int) int {
	below := n - 1 // places below it in the tree
	switch {
	case place > 0 && algorithm == Binomial:
		below = min(place&-place, n-place) - 1
	case place > 0:
		below = 0
	}
	switch {
	case k == Scatter:
		return below
	case place == 0:
		return 0
	}
	return below + 1
}

// neighbours returns the number of a rank's neighbours in a tree.
func neighbours(tree, rank, n int) (found int) {
	for other := range n {
		if other != rank && (parent(tree, other, n) == rank || parent(tree, rank, n) == other) {
			found++
		}
	}
	return found
}

// Counted returns the number of chunks that a rank's steps send.
func (s *Schedule) Counted(rank int) (chunks int) {
	return s.CountedTo(rank, func(int) bool { return true })
}

// CountedTo returns the number of chunks that a rank's steps send to the peers that to selects.
func (s *Schedule) CountedTo(rank int, to func(peer int) bool) (chunks int) {
	for _, t := range s.Ranks[rank] {
		for i := range t.Steps {
			if step := &t.Steps[i]; step.Op == Send && to(step.Peer) {
				chunks += step.Count
			}
		}
	}
	return chunks
}

// Pairs returns the pairs of a sending and a receiving rank, in the order in which they first occur
// in steps.
func (s *Schedule) Pairs() [][2]int {
	var pairs [][2]int
	known := map[[2]int]bool{}
	for rank, threads := range s.Ranks {
		for _, thread := range threads {
			for _, step := range thread.Steps {
				if pair := [2]int{rank, step.Peer}; step.Op == Send && !known[pair] {
					known[pair] = true
					pairs = append(pairs, pair)
				}
			}
		}
	}
	return pairs
}
