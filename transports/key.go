package transports

import (
	"crypto/rand"
	"encoding/binary"
)

// KeyLen is the length in bytes of a region's key, which is all that its Remote
// handle has in the transports of our own.
const KeyLen = 8

// NewKey draws the key of a region: not 0, and none that is taken. It cannot be
// guessed.
func NewKey(taken func(key uint64) bool) uint64 {
	for {
		var b [KeyLen]byte
		rand.Read(b[:])
		if key := binary.BigEndian.Uint64(b[:]); key != 0 && !taken(key) {
			return key
		}
	}
}
