package evidence

import "railbed/internal/wire"

// RDWindow is the largest distance between packets under way between two engines. The bitmap of an
// acknowledgement covers this distance.
const RDWindow = 64 * wire.RDMaxWords

// Serials records which of the latest RDWindow serial numbers have occurred.
type Serials struct {
	started bool
	next    uint32 // one more than the highest so far
	// bits has a bit for each number before next, at the number modulo RDWindow.
	bits [RDWindow / 64]uint64
}

// reach extends the window up to a number, and reports whether the number is in the window.
func (s *Serials) reach(n uint32) bool {
	if !s.started {
		s.started, s.next = true, n
	}
	ahead := int32(n - s.next)
	if ahead > RDWindow { // all recorded numbers leave the window
		s.next, ahead = n-RDWindow, RDWindow
	}
	for ; ahead >= 0; ahead-- {
		s.bits[s.next/64%(RDWindow/64)] &^= 1 << (s.next % 64)
		s.next++
	}
	return int32(n-s.next) >= -RDWindow
}

// Add records a number. It reports whether the number occurred before or is older than the window.
func (s *Serials) Add(n uint32) (before bool) {
	if !s.reach(n) {
		return true
	}
	word, bit := &s.bits[n/64%(RDWindow/64)], uint64(1)<<(n%64)
	before = *word&bit != 0
	*word |= bit
	return before
}

// Has reports whether a number occurred. It is false for numbers outside the window.
func (s *Serials) Has(n uint32) bool {
	ahead := int32(n - s.next)
	return s.started && ahead < 0 && ahead >= -RDWindow && s.bits[n/64%(RDWindow/64)]>>(n%64)&1 != 0
}
