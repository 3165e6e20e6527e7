package layers

import "time"

// OrdinalWindow is how far apart two packets of one identity may be and still
// be counted as the first and the second of a kind. After a longer pause the
// count starts again, at every tap alike. A second is far above any queueing
// in a fabric and bounds how much has to be remembered.
const OrdinalWindow = time.Second

// Ordinals tells identical packets apart: the k-th packet of one identity at
// one tap and in one direction is the k-th at every other tap. It holds a
// fixed table and is not safe for concurrent use.
//
// It is for taps of the kernel's. Frames that cross soft switches have serials, which
// need no such guess.
//
// Limits: when a tap misses one of several identical packets, or the fabric
// drops or reorders one, the later ones of the same second pair up wrongly
// from there on. When more than the table's packets pass within a second, the
// oldest are forgotten and repeats of those count from one again.
type Ordinals struct {
	slots []ordinalSlot
	mask  uint64
}

type ordinalSlot struct {
	key   uint64 // 0 is free
	last  int64  // ns
	count uint32
}

// ordinalWays is how many places a key may have. Eight slots of 24 bytes are
// three cache lines.
const ordinalWays = 8

// NewOrdinals makes a table that remembers the given number of packets, in 96
// to 192 bytes each; at that load one set in 5,000 overflows and forgets.
func NewOrdinals(packets int) *Ordinals {
	size := ordinalWays
	for size < 4*packets {
		size *= 2
	}
	return &Ordinals{slots: make([]ordinalSlot, size), mask: uint64(size - 1)}
}

// ID is the id of a packet with an identity that was seen at a place, a number
// for tap and direction, at a time in nanoseconds. The first of a kind has its
// identity as its id.
func (o *Ordinals) ID(identity, place uint64, now int64) uint64 {
	key := mix(identity, place+1) | 1
	first := (key >> 1 * ordinalWays) & o.mask
	set := o.slots[first : first+ordinalWays]
	oldest := &set[0]
	for i := range set {
		slot := &set[i]
		if slot.key == key {
			if now-slot.last > int64(OrdinalWindow) {
				slot.count = 0
			} else {
				slot.count++
			}
			slot.last = max(slot.last, now)
			return nth(identity, slot.count)
		}
		if slot.last < oldest.last {
			oldest = slot
		}
	}
	*oldest = ordinalSlot{key: key, last: now}
	return identity
}

func nth(identity uint64, count uint32) uint64 {
	if count == 0 {
		return identity
	}
	return mix(identity, uint64(count))
}
