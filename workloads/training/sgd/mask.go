package sgd

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Mask encrypts gradients so that a switch or another rank can add them up without decrypting them.
// It is additively homomorphic by one-time pads (Castelluccia, Mykletun and Tsudik, "Efficient
// aggregation of encrypted data in wireless sensor networks", 2005). The sum of all pads is one pad
// for any number of ranks (as in Chrapek, Khalilov and Hoefler, "HEAR: homomorphically encrypted
// allreduce", 2023).
//
// F(k) is the key stream of a step, AES-256 in counter mode. Rank i of n sends m + F(k(i)) -
// F(k(i+1)) modulo 2^32, and the last rank sends m + F(k(n-1)). Each message on the network, and
// each sum of some of them, is masked by a stream of its own. The sum of all messages is masked by
// F(k(0)), which all ranks know. A step must never be sealed twice: Seal refuses it. Mask encrypts
// and does not authenticate.
//
// Elements are fixed-point numbers of 32 bits.
type Mask struct {
	own, next, sum cipher.Block // next is nil at the last rank
	ranks          int
	sealed         int // the number of sealed steps
	stream         []byte
}

// fraction is the number of bits after the binary point.
const fraction = 20

// NewMask returns the mask of a rank. All ranks have the same secret. A secret is for one training
// only.
func NewMask(secret []byte, rank, ranks int) (*Mask, error) {
	m := &Mask{ranks: ranks}
	for _, key := range []struct {
		block *cipher.Block
		of    int
	}{{&m.own, rank}, {&m.next, rank + 1}, {&m.sum, 0}} {
		if key.of == ranks {
			continue
		}
		k, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("railbed sgd rank %d", key.of), 32)
		if err != nil {
			return nil, fmt.Errorf("derive the encryption key of rank %d: %w", key.of, err)
		}
		if *key.block, err = aes.NewCipher(k); err != nil {
			return nil, fmt.Errorf("use the encryption key of rank %d: %w", key.of, err)
		}
	}
	return m, nil
}

// Seal encrypts a gradient. It returns the number of elements that were too large for an exact sum
// over all ranks. Seal clips them to the largest magnitude that is not too large.
func (m *Mask) Seal(step int, gradient []float32, sealed []int32) (clipped int, err error) {
	if step < m.sealed {
		return 0, fmt.Errorf("seal step %d: key streams up to step %d have been used", step, m.sealed-1)
	}
	m.sealed = step + 1
	for i, g := range gradient {
		v, over := m.Fixed(g)
		if over {
			clipped++
		}
		sealed[i] = int32(v)
	}
	m.add(m.own, step, sealed, 1)
	if m.next != nil {
		m.add(m.next, step, sealed, -1)
	}
	return clipped, nil
}

// Fixed returns the whole number that represents an element, and whether the element was too large
// and was clipped.
func (m *Mask) Fixed(g float32) (v float64, clipped bool) {
	most := math.Floor(math.MaxInt32 / float64(m.ranks))
	if v = math.RoundToEven(float64(g) * (1 << fraction)); math.Abs(v) <= most {
		return v, false
	}
	return math.Copysign(most, v), true
}

// Float returns the element that a whole number, or a sum of them, represents.
func Float(v int32) float32 { return float32(v) / (1 << fraction) }

// Open decrypts the sum of all ranks' sealed gradients of a step.
func (m *Mask) Open(step int, sum []int32, into []float32) {
	m.add(m.sum, step, sum, -1)
	for i, v := range sum {
		into[i] = Float(v)
	}
}

// add adds a multiple of a step's key stream to the elements.
func (m *Mask) add(key cipher.Block, step int, to []int32, times int32) {
	var first [aes.BlockSize]byte
	binary.BigEndian.PutUint64(first[:], uint64(step))
	if cap(m.stream) < 4*len(to) {
		m.stream = make([]byte, 4*len(to))
	}
	stream := m.stream[:4*len(to)]
	clear(stream)
	cipher.NewCTR(key, first[:]).XORKeyStream(stream, stream)
	for i := range to {
		to[i] += times * int32(binary.LittleEndian.Uint32(stream[4*i:]))
	}
}
