package collective

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
)

// Matrix is the number of elements that each rank sends to each rank, by sender and then by receiver: the
// arguments of MPI_Alltoallv. A sender's input holds its blocks in the order of their receivers. A
// receiver's output holds its blocks in the order of their senders.
type Matrix [][]int

// Even returns the matrix of an all-to-all of count elements per rank. Each rank sends the same
// share to each rank, itself included. The first count % ranks receivers get one element more.
func Even(ranks, count int) Matrix {
	row := make([]int, ranks)
	for to := range row {
		row[to] = count / ranks
		if to < count%ranks {
			row[to]++
		}
	}
	return slices.Repeat(Matrix{row}, ranks)
}

// Skewed returns a matrix in which some receivers get more, as the experts of a mixture of experts
// do. The shares of the count elements of a sender follow Zipf's law: 1/k^skew for the k-th most
// popular receiver. The order of popularity is drawn from the seed and is the same for all senders.
// Shares are exact and rounded by largest remainders, so that the matrix is the same everywhere.
// With a skew of 0 the shares are even.
func Skewed(ranks, count, skew int, seed uint64) Matrix {
	if skew == 0 {
		return Even(ranks, count)
	}
	place := rand.New(rand.NewPCG(seed, uint64(ranks))).Perm(ranks) // by rank; 0 is the most popular
	weights := make([]*big.Rat, ranks)
	sum := new(big.Rat)
	for k := range weights {
		power := new(big.Int).Exp(big.NewInt(int64(k+1)), big.NewInt(int64(skew)), nil)
		weights[k] = new(big.Rat).SetFrac(big.NewInt(1), power)
		sum.Add(sum, weights[k])
	}
	shares, rests, left := make([]int, ranks), make([]*big.Rat, ranks), count
	for k, weight := range weights {
		exact := new(big.Rat).Mul(weight, big.NewRat(int64(count), 1))
		exact.Quo(exact, sum)
		whole := new(big.Int).Quo(exact.Num(), exact.Denom())
		shares[k] = int(whole.Int64())
		rests[k] = exact.Sub(exact, new(big.Rat).SetInt(whole))
		left -= shares[k]
	}
	order := make([]int, ranks)
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return rests[b].Cmp(rests[a]) })
	for _, k := range order[:left] {
		shares[k]++
	}
	row := make([]int, ranks)
	for to, k := range place {
		row[to] = shares[k]
	}
	return slices.Repeat(Matrix{row}, ranks)
}

// Sends returns the number of elements that a rank sends to others.
func (m Matrix) Sends(rank int) int { return m.InputLen(rank) - m[rank][rank] }

// InputLen and OutputLen return the number of elements of a rank's buffers.
func (m Matrix) InputLen(rank int) int { return total(m[rank]) }

func (m Matrix) OutputLen(rank int) (elements int) {
	for _, row := range m {
		elements += row[rank]
	}
	return elements
}

// addRow adds a sender's blocks to sums by receiver.
func (m Matrix) addRow(from int, sums []int) {
	for to, elements := range m[from] {
		sums[to] += elements
	}
}

// addColumn adds a receiver's blocks to sums by sender.
func (m Matrix) addColumn(to int, sums []int) {
	for from, row := range m {
		sums[from] += row[to]
	}
}

// prefix sums the rows of a matrix before a row, or its columns before a column. It goes on from the line of
// the latest call. So all lines in turn take a time in proportion to the matrix, and the same line again
// takes a time in proportion to the line. The zero prefix can be used, also concurrently, for the lines of
// one matrix.
type prefix struct {
	mu   sync.Mutex
	line int
	sums []int
}

// before returns the sums over the lines before a line. For rows these are, by receiver, where the block of
// a sender begins in the receiver's output. For columns they are, by sender, where the block for a receiver
// begins in the sender's input. There are as many lines as sums.
func (p *prefix) before(line, lines int, add func(line int, sums []int)) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sums == nil || line < p.line {
		p.line, p.sums = 0, make([]int, lines)
	}
	for ; p.line < line; p.line++ {
		add(p.line, p.sums)
	}
	return slices.Clone(p.sums)
}
