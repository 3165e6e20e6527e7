package verifytest

import "railbed/internal/units"

// RingAllReduceBytes returns the payload bytes that each rank of a ring all-reduce sends in all
// iterations, rounded up. With fewer than two ranks it returns 0. The reduce-scatter and the all-gather
// have n-1 steps each, and each step sends one n-th of the buffer. Together that is 2(n-1)/n of the size
// (Patarasuk and Yuan 2009).
func RingAllReduceBytes(ranks int, size units.Bytes, iterations int) units.Bytes {
	if ranks < 2 {
		return 0
	}
	n := units.Bytes(ranks)
	return (2*(n-1)*size*units.Bytes(iterations) + n - 1) / n
}

// AllToAllBytes returns the bytes that a rank of an all-to-all sends. The elements of its buffer,
// of each bytes, are divided among all ranks. If a remainder is left, the first ranks get one
// element more. The rank sends all parts but its own to others, (n-1)/n of the size.
func AllToAllBytes(rank, ranks int, size, each units.Bytes, iterations int) units.Bytes {
	elements, n := uint64(size/each), uint64(ranks)
	own := elements / n
	if uint64(rank) < elements%n {
		own++
	}
	return each * units.Bytes((elements-own)*uint64(iterations))
}
