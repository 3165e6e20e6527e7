package layers

import "time"

// OrdinalWindow is the maximum time between two packets of one identity for Ordinals to count them
// as the first and the second. After a longer pause the count starts again, at every tap alike. A
// second is far above any queueing delay in a fabric, and it bounds how many packets must be
// remembered.
const OrdinalWindow = time.Second

// Ordinals distinguishes identical packets: the k-th packet of an identity at one tap in one
// direction is the k-th at every other tap. It has a table of a fixed size and is not safe for
// concurrent use.
//
// It serves the kernel's taps. Frames that cross soft switches have serials, so they need no such
// guess.
//
// Limits: if a tap misses one of several identical packets, or the fabric drops or reorders one of
// them, the later packets of the same second are matched wrongly. If more packets pass within a
// second than the table holds, the oldest are forgotten, and their repetitions are counted from one
// again.
type Ordinals struct {
	slots []ordinalSlot
	mask  uint64
}

type ordinalSlot struct {
	key   uint64 // 0 if free
	last  int64  // ns
	count uint32
}

// ordinalWays is the number of slots that a key may use. Eight slots of 24 bytes are three cache
// lines.
const ordinalWays = 8

// NewOrdinals makes a table that remembers the given number of packets, in 96 to 192 bytes each. At
// that load one set in 5,000 overflows and forgets packets.
func NewOrdinals(packets int) *Ordinals {
	size := ordinalWays
	for size < 4*packets {
		size *= 2
	}
	return &Ordinals{slots: make([]ordinalSlot, size), mask: uint64(size - 1)}
}

// ID returns the id of a packet with an identity, seen at a place at a time in nanoseconds. The
// place is a number for the tap and the direction. The first packet of an identity has the identity
// as its id.
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
