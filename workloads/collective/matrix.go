package collective

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"slices"

	"railbed/internal/element"
)

// Matrix is how many elements each rank sends to each one, by sender and then by
// receiver: what MPI_Alltoallv is told. A sender's blocks stand in its input in the
// order of their receivers, a receiver's in its output in the order of their senders.
type Matrix [][]int

// Even is the matrix of an all-to-all of count elements per rank: each sends the same
// share to each, itself included; the first count % ranks receivers get one element
// more.
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

// Skewed is a matrix in which some receivers get more, as the experts of a mixture of
// experts do: their shares of what each rank sends are those of Zipf's law, 1/k^skew
// for the k-th most popular one, of count elements in all. Who is how popular is drawn
// from the seed, and the same for all senders. Shares are exact and rounded by largest
// remainders, so that the matrix is the same everywhere. A skew of 0 is even.
func Skewed(ranks, count, skew int, seed uint64) Matrix {
	if skew == 0 {
		return Even(ranks, count)
	}
	place := rand.New(rand.NewPCG(seed, uint64(ranks))).Perm(ranks) // by rank, its popularity from 0
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

// Sends is how many elements a rank sends to others.
func (m Matrix) Sends(rank int) int { return m.SendsIn(rank, Channel{}) }

// SendsIn is how many of them it sends in a channel.
func (m Matrix) SendsIn(rank int, c Channel) (elements int) {
	for to := range m {
		if to != rank {
			from, behind := c.Part(0, m[rank][to])
			elements += behind - from
		}
	}
	return elements
}

// InputLen and OutputLen are the elements of a rank's buffers.
func (m Matrix) InputLen(rank int) int  { return m.input(rank, len(m)) }
func (m Matrix) OutputLen(rank int) int { return m.output(len(m), rank) }

// input is where the block for a receiver begins in a sender's input.
func (m Matrix) input(from, to int) int {
	at := 0
	for _, elements := range m[from][:to] {
		at += elements
	}
	return at
}

// output is where the block of a sender begins in a receiver's output.
func (m Matrix) output(from, to int) int {
	at := 0
	for _, row := range m[:from] {
		at += row[to]
	}
	return at
}

// Blocks is the data of an all-to-all: bits, not all of them 0, that look random in
// sender, receiver, position and iteration. A block that is missing, of somebody else or
// of an earlier iteration, and an element at another place differ.
type Blocks struct {
	rank   int
	matrix Matrix
	size   int
}

// NewBlocks makes the data of one rank.
func NewBlocks(rank int, m Matrix, t element.Type) *Blocks {
	return &Blocks{rank: rank, matrix: m, size: t.Size()}
}

// blockKey is what the values of a block are drawn from.
func blockKey(from, to, iteration int) uint64 {
	return mix(mix(uint64(from)<<32|uint64(to)) ^ uint64(iteration))
}

// Fill sets an input to the rank's data for an iteration.
func (b *Blocks) Fill(input []byte, iteration int) {
	into := input[:0]
	for to, elements := range b.matrix[b.rank] {
		key := blockKey(b.rank, to, iteration)
		for i := range elements {
			into = appendBits(into, b.size, mix(key+uint64(i)))
		}
	}
}

// Wrong counts the elements of an output that are not what their sender had there.
func (b *Blocks) Wrong(output []byte, iteration int) (wrong uint64) {
	var want [8]byte
	for from, row := range b.matrix {
		key := blockKey(from, b.rank, iteration)
		for i := range row[b.rank] {
			if !bytes.Equal(output[:b.size], appendBits(want[:0], b.size, mix(key+uint64(i)))) {
				wrong++
			}
			output = output[b.size:]
		}
	}
	return wrong
}
