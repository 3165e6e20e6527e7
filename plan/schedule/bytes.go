package schedule

import "math/bits"

// Share is a part of the whole buffer: Num/Den of it.
type Share struct{ Num, Den int }

// Of is the share of so many bytes, rounded up.
func (s Share) Of(bytes uint64) uint64 {
	return (bytes*uint64(s.Num) + uint64(s.Den) - 1) / uint64(s.Den)
}

// Sent is what a rank sends in one operation by an algorithm, from the closed formula in
// its paper and not from a schedule: of S bytes and n ranks
//
//   - 2(n-1)/n S by ring, or hierarchical, for an all-reduce, (n-1)/n S for an all-gather or
//     a reduce-scatter, and S for a broadcast or a reduce, but nothing from whom its
//     chain ends at;
//   - 2(p-1)/p S by halving-doubling, p being the greatest power of two up to n; of the
//     first 2(n-p) ranks S from the even ones, and S more from the odd ones;
//   - log2(p) S by recursive-doubling, and so much more of the same ranks;
//   - S/2 for each neighbour in each of two trees by tree;
//   - S for each child by binomial for a broadcast, S for a reduce from all but the root;
//   - by direct (n-1)/n S from the root of a scatter, and S/n from each other rank of a gather;
//     by binomial S/n for each rank that it has below itself, and for itself in a gather.
func Sent(k Kind, algorithm string, ranks, rank, root int) Share {
	n := ranks
	if n == 1 || k == Barrier {
		return Share{0, 1}
	}
	place := (rank - root + n) % n
	switch {
	case k == Gather || k == Scatter:
		return Share{sharesPassed(k, algorithm, place, n), n}
	case k.Shares():
		return Share{n - 1, n}
	case algorithm == "binomial" && k == Broadcast:
		return Share{binomialChildren(place, n), 1}
	case k == Broadcast && place == n-1, k == Reduce && place == 0:
		return Share{0, 1}
	case k == Broadcast || k == Reduce:
		return Share{1, 1}
	case algorithm == "tree":
		return Share{neighbours(0, rank, n) + neighbours(1, rank, n), 2}
	case algorithm == "halving-doubling":
		p := 1 << (bits.Len(uint(n)) - 1)
		return foldedShare(Share{2 * (p - 1), p}, rank, n-p)
	case algorithm == "recursive-doubling":
		rounds := bits.Len(uint(n)) - 1
		return foldedShare(Share{rounds, 1}, rank, n-1<<rounds)
	}
	return Share{2 * (n - 1), n}
}

// foldedShare is what a rank sends where so many ranks take part by way of others.
func foldedShare(s Share, rank, extra int) Share {
	switch {
	case rank >= 2*extra:
		return s
	case rank%2 == 0:
		return Share{1, 1}
	}
	return Share{s.Num + s.Den, s.Den}
}

// SentAlong is what each rank of a Hierarchical collective sends to other nodes, by rails
// on which there are so many nodes with so many ranks each: of an all-reduce 2(N-1)/N of
// the buffer's part that is the rail's, and half of that of the others.
func SentAlong(k Kind, rails Rails) Share {
	nodes, each := len(rails), len(rails[0])
	if k == AllReduce {
		return Share{2 * (nodes - 1), nodes * each}
	}
	return Share{nodes - 1, nodes * each}
}

// binomialChildren is how many children a place has in a binomial tree of n places:
// one for each bit below its lowest one that is still within.
func binomialChildren(place, n int) (children int) {
	for bit := 1; bit < n && place&bit == 0; bit *= 2 {
		if place+bit < n {
			children++
		}
	}
	return children
}

// sharesPassed is how many shares a place of a gather or a scatter sends.
func sharesPassed(k Kind, algorithm string, place, n int) int {
	below := n - 1 // places below it in the tree
	switch {
	case place > 0 && algorithm == "binomial":
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

// neighbours is how many a rank has in a tree.
func neighbours(tree, rank, n int) (found int) {
	for other := range n {
		if other != rank && (parent(tree, other, n) == rank || parent(tree, rank, n) == other) {
			found++
		}
	}
	return found
}

// Counted is what a rank's steps send, in chunks.
func (s *Schedule) Counted(rank int) (chunks int) {
	return s.CountedTo(rank, func(int) bool { return true })
}

// CountedTo is what a rank's steps send to some others, in chunks.
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

// Pairs are the ranks of which one sends to the other, in the order in which steps say so.
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
