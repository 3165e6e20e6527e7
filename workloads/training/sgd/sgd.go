// Package sgd trains a small network by data-parallel stochastic gradient descent. It does real
// arithmetic on its own data. Gradients that cross a network are real, and the loss shows the
// effects of packet loss, compression or encryption on training.
//
// Each rank has a Replica. In each step it computes the gradient of samples that no other rank has.
// The ranks exchange the gradients by any collective, and each applies the mean. Replicas start
// equal and everything after that is deterministic. If the exchange gave all ranks the same bits,
// the replicas are equal bit by bit after each step, which Digest verifies.
//
// Ranks can exchange other data than the gradient. A Codec makes it shorter and later adds what it
// left out (error feedback). A Mask encrypts it so that sums of encrypted values are encrypted
// sums.
//
// Nothing here is safe for concurrent use.
package sgd

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"math/rand/v2"
)

// Config is the configuration that all replicas share.
type Config struct {
	// Hidden are the widths of the layers between input and output.
	Hidden []int
	// Batch is the number of samples of a rank in a step.
	Batch int
	// Rate is the learning rate, and Momentum the momentum (Polyak's heavy ball).
	Rate, Momentum float32
	// Seed determines the first weights and the samples.
	Seed uint64
}

// Parameters returns the number of elements of a gradient.
func (c Config) Parameters() int {
	count, in := 0, inputs
	for _, out := range c.widths() {
		count += in*out + out
		in = out
	}
	return count
}

func (c Config) widths() []int { return append(append([]int(nil), c.Hidden...), classes) }

// Replica is one rank's network.
type Replica struct {
	config   Config
	rank     int
	weights  []float32
	velocity []float32
	layers   []layer
	held     []sample
	bytes    []byte // the weights as bytes, for the digest
}

// heldOut is the number of samples with which no rank trains.
const heldOut = 256

// New returns a rank's replica. All replicas have the same weights.
func New(c Config, rank int) *Replica {
	n := c.Parameters()
	r := &Replica{config: c, rank: rank, weights: make([]float32, n), velocity: make([]float32, n),
		bytes: make([]byte, 4*n)}
	draw := rand.New(rand.NewPCG(c.Seed, weightStream))
	rest, in := r.weights, inputs
	for _, out := range c.widths() {
		l := layer{in: in, out: out, weights: rest[:in*out], bias: rest[in*out:][:out],
			values: make([]float32, out), errors: make([]float32, out)}
		spread := math.Sqrt(2 / float64(in)) // He et al., 2015
		for i := range l.weights {
			l.weights[i] = float32(draw.NormFloat64() * spread)
		}
		r.layers, rest, in = append(r.layers, l), rest[in*out+out:], out
	}
	draw = rand.New(rand.NewPCG(c.Seed, heldStream))
	r.held = make([]sample, heldOut)
	for i := range r.held {
		r.held[i] = newSample(draw)
	}
	return r
}

// Gradient computes the mean gradient over this rank's samples of a step, and their mean loss:
// cross-entropy in nats. into has Parameters elements.
func (r *Replica) Gradient(step int, into []float32) (loss float64) {
	return r.GradientOf(r.rank, step, into)
}

// GradientOf computes the result of Gradient at another rank with the same weights.
func (r *Replica) GradientOf(rank, step int, into []float32) (loss float64) {
	clear(into)
	draw := rand.New(rand.NewPCG(r.config.Seed, sampleStream(rank, step)))
	for range r.config.Batch {
		s := newSample(draw)
		loss += r.backward(&s, into)
	}
	by := 1 / float32(r.config.Batch)
	for i := range into {
		into[i] *= by
	}
	return loss / float64(r.config.Batch)
}

// Apply makes one step of the descent with the mean gradient of all ranks.
func (r *Replica) Apply(mean []float32) {
	for i, g := range mean {
		r.velocity[i] = r.config.Momentum*r.velocity[i] + g
		r.weights[i] -= r.config.Rate * r.velocity[i]
	}
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// Digest returns a digest of all bits of the weights.
func (r *Replica) Digest() uint64 {
	for i, w := range r.weights {
		binary.LittleEndian.PutUint32(r.bytes[4*i:], math.Float32bits(w))
	}
	return crc64.Checksum(r.bytes, crcTable)
}

// Evaluate returns the mean loss over samples with which no rank trains, and the share that the
// network classifies correctly.
func (r *Replica) Evaluate() (loss, accuracy float64) {
	right := 0
	for i := range r.held {
		s := &r.held[i]
		out := r.forward(s)
		loss += crossEntropy(out, s.class)
		best := 0
		for class, p := range out {
			if p > out[best] {
				best = class
			}
		}
		if best == s.class {
			right++
		}
	}
	return loss / heldOut, float64(right) / heldOut
}
