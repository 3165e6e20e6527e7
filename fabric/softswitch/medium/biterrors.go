package medium

import (
	"math/bits"

	"railbed/fabric/softswitch/draw"
	"railbed/plan"
)

// checkSequence is the length of Ethernet's frame check sequence. A frame has it on every line, whatever the
// line's overhead.
const checkSequence = 4

// bitErrors are independent errors of single bits. A frame with a wrong bit fails its frame check sequence
// (IEEE 802.3, 3.4), so that its receiver discards it.
type bitErrors struct {
	overhead uint64 // in bytes
	always   bool   // every bit is wrong
	// wrong has the probabilities of a wrong bit among 1, 2, 4, 8, ... bits, in units of 2^-64.
	wrong [64]uint64
}

func newBitErrors(d plan.Direction) *bitErrors {
	if d.BitErrorRatio.IsZero() {
		return nil
	}
	e := &bitErrors{overhead: max(checkSequence, uint64(d.Overhead))}
	e.wrong[0], e.always = draw.NewChance(d.BitErrorRatio).Below()
	for i := 1; i < len(e.wrong); i++ {
		e.wrong[i] = either(e.wrong[i-1], e.wrong[i-1])
	}
	return e
}

// lost reports whether a frame with a draw has a wrong bit. Bytes is its length without the frame check
// sequence.
func (e *bitErrors) lost(drawn uint64, bytes int) bool {
	count, chance := (uint64(bytes)+e.overhead)*8, uint64(0)
	for ; count != 0; count &= count - 1 {
		chance = either(chance, e.wrong[bits.TrailingZeros64(count)])
	}
	return drawn < chance || e.always
}

// either returns the probability of at least one of two independent events, in units of 2^-64, rounded down.
// It uses integers, so that each machine has the same draws: a + b(1 - a).
func either(a, b uint64) uint64 {
	if a == 0 {
		return b
	}
	high, _ := bits.Mul64(b, -a)
	return a + high
}
