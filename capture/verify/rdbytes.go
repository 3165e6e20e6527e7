package verify

import (
	"railbed/internal/wire"
)

// rdKey names what one engine sends to another: the life and engine of who sends,
// and the address, engine and tag of who is meant, because a receiver that starts
// again is another.
type rdKey struct {
	life                uint64
	to                  [16]byte
	tag                 uint32
	source, destination uint8
}

func (p *Packet) rdKey() rdKey {
	d := p.RD
	return rdKey{life: d.Life, to: p.key.dst, tag: d.Tag, source: d.Source, destination: d.Destination}
}

// rdWindow is how far apart packets under way between two engines may be: what the
// bitmap of an acknowledgement can tell.
const rdWindow = 64 * wire.RDMaxWords

// maxRDSequences bounds the pairs of engines that a check follows.
const maxRDSequences = 1 << 15

// serialSet is which of the latest rdWindow serial numbers were met.
type serialSet struct {
	started bool
	next    uint32 // behind the highest so far
	// bits has one for each number before next, at the number modulo rdWindow.
	bits [rdWindow / 64]uint64
}

// reach makes a number one of the latest, and says whether it is one.
func (s *serialSet) reach(n uint32) bool {
	if !s.started {
		s.started, s.next = true, n
	}
	ahead := int32(n - s.next)
	if ahead > rdWindow { // all that is there goes
		s.next, ahead = n-rdWindow, rdWindow
	}
	for ; ahead >= 0; ahead-- {
		s.bits[s.next/64%(rdWindow/64)] &^= 1 << (s.next % 64)
		s.next++
	}
	return int32(n-s.next) >= -rdWindow
}

// add takes a number, and says whether it was met before or is none of the latest.
func (s *serialSet) add(n uint32) (before bool) {
	if !s.reach(n) {
		return true
	}
	word, bit := &s.bits[n/64%(rdWindow/64)], uint64(1)<<(n%64)
	before = *word&bit != 0
	*word |= bit
	return before
}

// has says whether a number was met, as far as it is one of the latest.
func (s *serialSet) has(n uint32) bool {
	ahead := int32(n - s.next)
	return s.started && ahead < 0 && ahead >= -rdWindow && s.bits[n/64%(rdWindow/64)]>>(n%64)&1 != 0
}

// rdStream tells payload that one engine sends to another for the first time from
// repeated one, by the packets' numbers, as stream does for TCP by its bytes'.
type rdStream struct {
	seen, skipped   serialSet
	fresh, repeated uint64 // bytes of payload
	empty           uint64 // fresh packets without any
	left            uint64 // of the fresh ones, those that a skip gave up
	// again is those of the fresh bytes that were seen only when they were sent again.
	again uint64
}

// data takes a packet that leaves its sender.
func (s *rdStream) data(d *RD) {
	if s.seen.add(d.PSN) {
		s.repeated += uint64(d.Length)
		return
	}
	s.fresh += uint64(d.Length)
	if d.Length == 0 {
		s.empty++
	}
	if d.Flags&wire.RDRepeat != 0 {
		s.again += uint64(d.Length)
	}
}

// skip takes one that leaves: what it gives up of a message that may have holes
// comes off, once.
func (s *rdStream) skip(d *RD) {
	if f := d.Bytes.Skip(); d.Flags&wire.RDDroppable != 0 && f.Count == 1 && !s.skipped.add(d.PSN) {
		s.left += uint64(f.Bytes)
	}
}
