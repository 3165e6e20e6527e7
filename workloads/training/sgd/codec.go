package sgd

import (
	"encoding/binary"
	"math"
	"slices"
)

// Codec encodes gradients as shorter messages, all of one length. The part that a message leaves
// out is added to the next gradient (error feedback). Sources: Seide et al., "1-bit stochastic
// gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019.
type Codec interface {
	// Len returns the length of a message in bytes, a multiple of 4.
	Len() int
	// Encode encodes a gradient as a message.
	Encode(gradient []float32, message []byte)
	// Left returns the part of the gradients that the messages so far have left out, by element.
	// The slice belongs to the codec.
	Left() []float32
	// Decode adds up concatenated messages. All ranks that decode the same messages get the same
	// bits.
	Decode(messages []byte, sum []float32)
}

// residual is the part that earlier messages left out.
type residual []float32

// with adds a gradient and returns the sum, which the next message should carry.
func (r residual) with(gradient []float32) []float32 {
	for i, g := range gradient {
		r[i] += g
	}
	return r
}

// topK sends the elements with the largest magnitudes, with their indices (Aji and Heafield,
// "Sparse communication for distributed gradient descent", 2017).
type topK struct {
	count int
	left  residual
	order []int32
}

// NewTopK returns a codec that keeps this share of n elements, and at least one element.
func NewTopK(n int, share float64) Codec {
	t := &topK{count: min(n, max(1, int(math.Round(share*float64(n))))), left: make(residual, n),
		order: make([]int32, n)}
	return t
}

// entryLen is the length of an element: its index and its value.
const entryLen = 8

func (t *topK) Left() []float32 { return t.left }

func (t *topK) Len() int { return entryLen * t.count }

func (t *topK) Encode(gradient []float32, message []byte) {
	wanted := t.left.with(gradient)
	for i := range t.order {
		t.order[i] = int32(i)
	}
	size := func(i int32) float32 { return max(wanted[i], -wanted[i]) }
	slices.SortFunc(t.order, func(a, b int32) int {
		switch x, y := size(a), size(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a - b)
	})
	for i, at := range t.order[:t.count] {
		binary.LittleEndian.PutUint32(message[entryLen*i:], uint32(at))
		binary.LittleEndian.PutUint32(message[entryLen*i+4:], math.Float32bits(wanted[at]))
		wanted[at] = 0
	}
}

func (t *topK) Decode(messages []byte, sum []float32) {
	clear(sum)
	for e := messages; len(e) >= entryLen; e = e[entryLen:] {
		if at := binary.LittleEndian.Uint32(e); at < uint32(len(sum)) {
			sum[at] += math.Float32frombits(binary.LittleEndian.Uint32(e[4:]))
		}
	}
}

// quantised sends each element as a multiple of a step that a block of elements shares. It is
// QSGD (Alistarh et al., 2017) with the largest magnitude as norm, and rounding to the nearest.
type quantised struct {
	bits int
	left residual
}

// quantBlock is the number of elements that share a step.
const quantBlock = 256

// NewQuantised returns a codec of 2, 4 or 8 bits for each of n elements: -1 to 1, -7 to 7 or -127
// to 127 steps.
func NewQuantised(n, bits int) Codec { return &quantised{bits: bits, left: make(residual, n)} }

func (q *quantised) Left() []float32 { return q.left }

// blockLen returns the length of a block: its step and the elements.
func (q *quantised) blockLen() int { return 4 + quantBlock*q.bits/8 }

func (q *quantised) Len() int { return (len(q.left) + quantBlock - 1) / quantBlock * q.blockLen() }

func (q *quantised) Encode(gradient []float32, message []byte) {
	clear(message)
	wanted := q.left.with(gradient)
	most := float32(int(1)<<(q.bits-1) - 1)
	for block := range slices.Chunk(wanted, quantBlock) {
		var largest float32
		for _, v := range block {
			largest = max(largest, v, -v)
		}
		step := largest / most
		binary.LittleEndian.PutUint32(message, math.Float32bits(step))
		for i, v := range block {
			if step == 0 {
				break
			}
			level := int(math.Round(float64(v / step)))
			block[i] = v - float32(level)*step
			bit := i * q.bits
			message[4+bit/8] |= byte(level) & (1<<q.bits - 1) << (bit % 8)
		}
		message = message[q.blockLen():]
	}
}

func (q *quantised) Decode(messages []byte, sum []float32) {
	clear(sum)
	for ; len(messages) >= q.Len(); messages = messages[q.Len():] {
		rest := messages
		for block := range slices.Chunk(sum, quantBlock) {
			step := math.Float32frombits(binary.LittleEndian.Uint32(rest))
			for i := range block {
				bit := i * q.bits
				level := int8(rest[4+bit/8]>>(bit%8)<<(8-q.bits)) >> (8 - q.bits)
				block[i] += float32(level) * step
			}
			rest = rest[q.blockLen():]
		}
	}
}
