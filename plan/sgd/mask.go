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

// Mask encrypts gradients so that whoever adds up what is encrypted, a switch or another
// rank, adds up gradients without seeing any: additively homomorphic by one-time pads
// (Castelluccia, Mykletun and Tsudik, "Efficient aggregation of encrypted data in wireless
// sensor networks", 2005) whose sum is one pad for any number of ranks (as in Chrapek,
// Khalilov and Hoefler, "HEAR: homomorphically encrypted allreduce", 2023).
//
// With F(k) the key stream of a step, AES-256 in counter mode, rank i of n sends
// m + F(k(i)) - F(k(i+1)) modulo 2^32, the last one m + F(k(n-1)). What the network sees,
// each message and each sum of some of them, is masked by a stream of its own; the sum of
// all by F(k(0)), which all ranks know. A step must never be sealed twice: Seal says no.
// It hides and does not authenticate.
//
// Elements are fixed-point numbers of 32 bits.
type Mask struct {
	own, next, sum cipher.Block // next is nil at the last rank
	ranks          int
	sealed         int // steps
	stream         []byte
}

// fraction is the bits behind the point.
const fraction = 20

// NewMask returns the mask of a rank. All ranks have the same secret, and one secret for
// one training.
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
			return nil, fmt.Errorf("derive the mask of rank %d: %w", key.of, err)
		}
		if *key.block, err = aes.NewCipher(k); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Seal encrypts a gradient. It returns how many elements were too large for the sum of all
// ranks' to be exact, and were taken as the largest that is.
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

// Fixed is the whole number that stands for an element, and whether that is another one
// because the element is too large.
func (m *Mask) Fixed(g float32) (v float64, clipped bool) {
	most := math.Floor(math.MaxInt32 / float64(m.ranks))
	if v = math.RoundToEven(float64(g) * (1 << fraction)); math.Abs(v) <= most {
		return v, false
	}
	return math.Copysign(most, v), true
}

// Float is the element that a whole number, or a sum of these, stands for.
func Float(v int32) float32 { return float32(v) / (1 << fraction) }

// Open gives the sum of all ranks' gradients of a step from that of what they sealed.
func (m *Mask) Open(step int, sum []int32, into []float32) {
	m.add(m.sum, step, sum, -1)
	for i, v := range sum {
		into[i] = Float(v)
	}
}

// add adds a step's key stream to the elements, so many times.
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
