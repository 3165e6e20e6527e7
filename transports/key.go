package transports

import (
	"crypto/rand"
	"encoding/binary"
)

// KeyLen is the length in bytes of a region's key. In Railbed's own transports the key is the whole
// Remote handle.
const KeyLen = 8

// NewKey draws a random key of a region that cannot be guessed. The key is not 0, and not one for
// which taken returns true.
func NewKey(taken func(key uint64) bool) uint64 {
	for {
		var b [KeyLen]byte
		rand.Read(b[:])
		if key := binary.BigEndian.Uint64(b[:]); key != 0 && !taken(key) {
			return key
		}
	}
}
