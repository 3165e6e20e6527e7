package schedule

import "math/bits"

// folded adapts an algorithm among p ranks, the largest power of two up to n, to n ranks. Of the
// first 2(n-p) ranks the even ones give their buffer to the next rank before the algorithm and
// receive the result from it afterwards.
type folded struct {
	*builder
	p, extra int
}

func fold(n int) folded {
	p := 1 << (bits.Len(uint(n)) - 1)
	return folded{p: p, extra: n - p}
}

// at returns the rank at a position among the participants.
func (f folded) at(place int) int {
	if place < f.extra {
		return 2*place + 1
	}
	return place + f.extra
}

func (f folded) begin() {
	for r := range f.extra {
		f.send(0, 2*r, 2*r+1, 0, f.Chunks)
		f.combine(0, 2*r, 2*r+1, 0, f.Chunks)
	}
}

func (f folded) end() *Schedule {
	for r := range f.extra {
		f.send(0, 2*r+1, 2*r, 0, f.Chunks)
		f.receive(0, 2*r+1, 2*r, 0, f.Chunks)
	}
	return f.Schedule
}

// halvingDoubling is Rabenseifner's all-reduce as in MPICH (Thakur, Rabenseifner and Gropp 2005,
// section 4.5). It is a reduce-scatter that halves the buffer and doubles the distance in each
// round, then an all-gather in reverse.
func halvingDoubling(_ Kind, n, _ int) *Schedule {
	f := fold(n)
	p := f.p
	f.builder = build(Schedule{Kind: AllReduce, Algorithm: HalvingDoubling, Chunks: p}, n, 1)
	if n == 1 {
		f.keep(0, 0)
		return f.Schedule
	}
	f.begin()
	first := make([]int, p) // first chunk of each participant's part
	for distance := 1; distance < p; distance *= 2 {
		half := p / 2 / distance
		for v := range p { // all send before any of them changes its data
			kept, sent := first[v], first[v]+half
			if v&distance != 0 {
				kept, sent = sent, kept
			}
			f.send(0, f.at(v), f.at(v^distance), sent, half)
			first[v] = kept
		}
		for v := range p {
			f.combine(0, f.at(v^distance), f.at(v), first[v], half)
		}
	}
	for distance := p / 2; distance > 0; distance /= 2 {
		count := p / 2 / distance
		for v := range p {
			f.send(0, f.at(v), f.at(v^distance), first[v], count)
		}
		for v := range p {
			f.receive(0, f.at(v^distance), f.at(v), first[v^distance], count)
		}
		for v := range p {
			if v&distance != 0 {
				first[v] -= count
			}
		}
	}
	return f.end()
}

// recursiveDoubling is the all-reduce for short buffers (Thakur, Rabenseifner and Gropp 2005,
// section 4.5). In each round two ranks exchange their whole sums, at twice the distance of the
// round before. Sums go to the output and to scratch memory in turn, so a step need not wait until
// the sum before it is sent.
func recursiveDoubling(_ Kind, n, _ int) *Schedule {
	f := fold(n)
	f.builder = build(Schedule{Kind: AllReduce, Algorithm: RecursiveDoubling, Chunks: 1}, n, 1)
	if n == 1 {
		f.keep(0, 0)
		return f.Schedule
	}
	f.begin()
	target := Output
	if bits.Len(uint(f.p))%2 == 1 { // an even number of rounds, so that the last writes to the output
		target = Scratch
	}
	for distance := 1; distance < f.p; distance *= 2 {
		for v := range f.p {
			f.send(0, f.at(v), f.at(v^distance), 0, 1)
		}
		for v := range f.p {
			f.combineInto(target, 0, f.at(v^distance), f.at(v), 0, 1)
		}
		target = Output + Scratch - target
	}
	return f.end()
}

// doubleTree builds the two trees of Sanders, Speck and Träff ("Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", 2009), as NCCL does. Each tree reduces one half of the
// buffer to its root and sends the result back. A rank with two children in one tree is a leaf of
// the other.
func doubleTree(_ Kind, n, _ int) *Schedule {
	b := build(Schedule{Kind: AllReduce, Algorithm: Tree, Chunks: 2}, n, 2)
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

// parent returns the parent of a rank in one of the two trees, or -1 for the root. The second tree
// is the first, mirrored or, with an odd number of ranks, shifted by one.
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

// treeParent is NCCL's ncclGetBtree. Rank 0 has one child. Below that child the lowest set bit of a
// rank determines its depth, and odd ranks are leaves.
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
