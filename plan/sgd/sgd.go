// Package sgd trains a small network by data-parallel stochastic gradient descent: real
// arithmetic on data of its own, so that a gradient that crosses a network is one, and
// what loss, compression or encryption does to training is seen in the loss.
//
// Each rank has a Replica. In each step it computes the gradient of samples that no other
// rank has, the ranks exchange these by whatever collective, and each applies the mean.
// Replicas begin alike and everything after that is deterministic, so that they are equal
// bit by bit after each step if the exchange gave all ranks the same bits; Digest says so.
//
// What is exchanged may be less or other than the gradient: a Codec makes it shorter and
// gives back later what it left out (error feedback), a Mask encrypts it so that sums are
// those of what is encrypted.
//
// Nothing here is safe for concurrent use.
package sgd

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"math/rand/v2"
)

// Config is what all replicas have in common.
type Config struct {
	// Hidden are the widths of the layers between input and output.
	Hidden []int
	// Batch is the samples of a rank in a step.
	Batch int
	// Rate and Momentum are those of the descent (Polyak's heavy ball).
	Rate, Momentum float32
	// Seed gives the first weights and the samples.
	Seed uint64
}

// Parameters is how many numbers a gradient has.
func (c Config) Parameters() int {
	count, in := 0, Inputs
	for _, out := range c.widths() {
		count += in*out + out
		in = out
	}
	return count
}

func (c Config) widths() []int { return append(append([]int(nil), c.Hidden...), Classes) }

// Replica is one rank's network.
type Replica struct {
	config   Config
	rank     int
	weights  []float32
	velocity []float32
	layers   []layer
	held     []sample
	bytes    []byte // of the weights, for the digest
}

// heldOut is how many samples no rank trains with.
const heldOut = 256

// New returns a rank's replica: all have the same weights.
func New(c Config, rank int) *Replica {
	n := c.Parameters()
	r := &Replica{config: c, rank: rank, weights: make([]float32, n), velocity: make([]float32, n),
		bytes: make([]byte, 4*n)}
	draw := rand.New(rand.NewPCG(c.Seed, weightStream))
	rest, in := r.weights, Inputs
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

// Gradient computes the mean gradient of the step's samples of this rank, and their mean
// loss: cross-entropy in nats. into has Parameters elements.
func (r *Replica) Gradient(step int, into []float32) (loss float64) {
	return r.GradientOf(r.rank, step, into)
}

// GradientOf is what Gradient is at another rank that has the same weights.
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

// Apply goes one step down the mean gradient of all ranks.
func (r *Replica) Apply(mean []float32) {
	for i, g := range mean {
		r.velocity[i] = r.config.Momentum*r.velocity[i] + g
		r.weights[i] -= r.config.Rate * r.velocity[i]
	}
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// Digest is of all bits of the weights.
func (r *Replica) Digest() uint64 {
	for i, w := range r.weights {
		binary.LittleEndian.PutUint32(r.bytes[4*i:], math.Float32bits(w))
	}
	return crc64.Checksum(r.bytes, crcTable)
}

// Evaluate gives the mean loss over samples that no rank trains with, and the share of
// them that it gets right.
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
