package schedule

import "math/bits"

// halvingDoubling is Rabenseifner's all-reduce as MPICH has it (Thakur, Rabenseifner and
// Gropp 2005, section 4.5): a reduce-scatter by recursive halving of the buffer and
// doubling of the distance, then an all-gather the other way around, among p ranks, the
// greatest power of two. Of the first 2(n-p) ranks the even ones give their buffer to
// the next rank before that and get the result from it afterwards.
func halvingDoubling(n int) *Schedule {
	p := 1 << (bits.Len(uint(n)) - 1)
	extra := n - p
	b := build(Schedule{Kind: AllReduce, Algorithm: "halving-doubling", Chunks: p}, n, 1)
	if n == 1 {
		b.keep(0, 0)
		return b.Schedule
	}
	for r := range extra {
		b.send(0, 2*r, 2*r+1, 0, p)
		b.combine(0, 2*r, 2*r+1, 0, p)
	}
	at := func(place int) int { // the rank that takes part at a place
		if place < extra {
			return 2*place + 1
		}
		return place + extra
	}
	first := make([]int, p) // chunk of each place's part
	for distance := 1; distance < p; distance *= 2 {
		half := p / 2 / distance
		for v := range p { // all send before any changes what it has
			kept, sent := first[v], first[v]+half
			if v&distance != 0 {
				kept, sent = sent, kept
			}
			b.send(0, at(v), at(v^distance), sent, half)
			first[v] = kept
		}
		for v := range p {
			b.combine(0, at(v^distance), at(v), first[v], half)
		}
	}
	for distance := p / 2; distance > 0; distance /= 2 {
		count := p / 2 / distance
		for v := range p {
			b.send(0, at(v), at(v^distance), first[v], count)
		}
		for v := range p {
			b.receive(0, at(v^distance), at(v), first[v^distance], count)
		}
		for v := range p {
			if v&distance != 0 {
				first[v] -= count
			}
		}
	}
	for r := range extra {
		b.send(0, 2*r+1, 2*r, 0, p)
		b.receive(0, 2*r+1, 2*r, 0, p)
	}
	return b.Schedule
}

// doubleTree is the two trees of Sanders, Speck and Träff ("Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009) as NCCL builds them: each reduces one
// half of the buffer to its root and sends the result back, and who has two children in
// one of them is a leaf of the other.
func doubleTree(n int) *Schedule {
	b := build(Schedule{Kind: AllReduce, Algorithm: "tree", Chunks: 2}, n, 2)
	if n == 1 {
		b.keep(0, 0)
		b.keep(0, 1)
		return b.Schedule
	}
	for tree := range 2 {
		order := make([]int, 0, n) // parents before children
		children := make([][]int, n)
		for rank := range n {
			if up := parent(tree, rank, n); up >= 0 {
				children[up] = append(children[up], rank)
			} else {
				order = append(order, rank)
			}
		}
		for i := 0; i < len(order); i++ {
			order = append(order, children[order[i]]...)
		}
		for i := len(order) - 1; i >= 0; i-- {
			for _, child := range children[order[i]] {
				b.combine(tree, child, order[i], tree, 1)
			}
			if up := parent(tree, order[i], n); up >= 0 {
				b.send(tree, order[i], up, tree, 1)
			}
		}
		for _, rank := range order {
			if up := parent(tree, rank, n); up >= 0 {
				b.receive(tree, up, rank, tree, 1)
			}
			for _, child := range children[rank] {
				b.send(tree, rank, child, tree, 1)
			}
		}
	}
	return b.Schedule
}

// parent is that of a rank in one of the two trees, -1 of the root. The second one is
// the first, mirrored, or with an odd number of ranks moved by one.
func parent(tree, rank, n int) int {
	switch {
	case tree == 0:
		return treeParent(rank, n)
	case n%2 == 0:
		if up := treeParent(n-1-rank, n); up >= 0 {
			return n - 1 - up
		}
	default:
		if up := treeParent((rank-1+n)%n, n); up >= 0 {
			return (up + 1) % n
		}
	}
	return -1
}

// treeParent is NCCL's ncclGetBtree: rank 0 has one child, and below that a rank's depth
// is that of its lowest bit, odd ranks being leaves.
func treeParent(rank, n int) int {
	if rank == 0 {
		return -1
	}
	bit := rank & -rank
	if up := rank&^bit | bit<<1; up < n {
		return up
	}
	return rank &^ bit
}
