package path

import (
	"math/bits"
	"time"

	"railbed/internal/clock"
)

// golden is 2^64 divided by the golden ratio, made odd: SplitMix64's step.
const golden = 0x9e3779b97f4a7c15

// mix maps 64 bits to 64 bits, one to one. Each bit of the result depends on every bit of x. It is
// the finaliser of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
// Generators, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// random is SplitMix64. It is one word. Seeds close to each other give different numbers from the
// first one on, unlike with math/rand/v2's PCG.
type random uint64

// below returns a number from 0 to n-1.
func (r *random) below(n int) int {
	*r += golden
	return within(mix(uint64(*r)), n)
}

// within maps a drawn number to 0 to n-1.
func within(drawn uint64, n int) int {
	high, _ := bits.Mul64(drawn, uint64(n))
	return int(high)
}

// set is a set of paths.
type set [maxPaths / 64]uint64

func (s *set) has(p int) bool { return s[uint(p)/64]>>(uint(p)%64)&1 != 0 }
func (s *set) add(p int)      { s[uint(p)/64] |= 1 << (uint(p) % 64) }
func (s *set) remove(p int)   { s[uint(p)/64] &^= 1 << (uint(p) % 64) }

// next returns the first member that is at least p, or -1.
func (s *set) next(p int) int {
	word := uint(p) / 64
	if word >= uint(len(s)) {
		return -1
	}
	rest := s[word] >> (uint(p) % 64) << (uint(p) % 64)
	for rest == 0 {
		if word++; word == uint(len(s)) {
			return -1
		}
		rest = s[word]
	}
	return int(word)*64 + bits.TrailingZeros64(rest)
}

// after returns the next member after p in a circle, or -1 if there is none.
func (s *set) after(p int) int {
	if q := s.next(p + 1); q >= 0 {
		return q
	}
	return s.next(0)
}

// nth returns the member that has n members below it.
func (s *set) nth(n int) int {
	for word, members := range s {
		count := bits.OnesCount64(members)
		if n >= count {
			n -= count
			continue
		}
		for ; n > 0; n-- {
			members &= members - 1
		}
		return word*64 + bits.TrailingZeros64(members)
	}
	return -1
}

// latest records when an event last happened, and on which path, and the same for the last other
// path.
type latest struct {
	path, otherPath int
	at, other       clock.Time
}

var nothing = latest{path: -1, otherPath: -1, at: before, other: before}

func (l *latest) record(p int, at clock.Time) {
	switch {
	case p == l.path:
		l.at = max(l.at, at)
	case at >= l.at:
		l.path, l.at, l.otherPath, l.other = p, at, l.path, l.at
	case at >= l.other:
		l.otherPath, l.other = p, at
	}
}

// except returns the last time of the event on a path other than p.
func (l *latest) except(p int) clock.Time {
	if p == l.path {
		return l.other
	}
	return l.at
}

// history records when the packets that arrived were sent and over which paths, in buckets of time,
// for some round trips back.
type history struct {
	shift   uint // a bucket is 1<<shift ns wide
	buckets [64]bucket
}

type bucket struct {
	number  int64 // of the bucket in time
	path    int
	several bool // also over other paths
}

// fit sets the bucket width to d, or down to a quarter of d: small changes of d keep the history.
func (h *history) fit(d time.Duration) {
	shift := uint(bits.Len64(uint64(d)) - 1)
	if h.shift != 0 && h.shift <= shift && h.shift+1 >= shift {
		return
	}
	h.shift = shift
	for i := range h.buckets {
		h.buckets[i].number = before
	}
}

// width is the width of a bucket.
func (h *history) width() time.Duration { return 1 << h.shift }

func (h *history) record(p int, at clock.Time) {
	number := int64(at) >> h.shift
	switch b := &h.buckets[number&63]; {
	case b.number < number:
		*b = bucket{number: number, path: p}
	case b.number == number && b.path != p:
		b.several = true
	}
}

// near reports whether a packet arrived over a path other than p that was sent in the bucket of the
// time at, or in a bucket next to it.
func (h *history) near(p int, at clock.Time) bool {
	number := int64(at) >> h.shift
	for n := number - 1; n <= number+1; n++ {
		if b := &h.buckets[n&63]; b.number == n && (b.several || b.path != p) {
			return true
		}
	}
	return false
}
