package verify

import (
	"railbed/internal/wire"
)

// rdKey names the packets from one engine to another. It holds the life and engine of the sender,
// and the address, engine and tag of the receiver. The tag is part of the key because a restarted
// receiver is a new receiver.
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

// rdWindow is the largest distance between packets under way between two engines. The bitmap of an
// acknowledgement covers this distance.
const rdWindow = 64 * wire.RDMaxWords

// maxRDSequences bounds the pairs of engines that a check follows.
const maxRDSequences = 1 << 15

// serialSet records which of the latest rdWindow serial numbers have occurred.
type serialSet struct {
	started bool
	next    uint32 // one more than the highest so far
	// bits has a bit for each number before next, at the number modulo rdWindow.
	bits [rdWindow / 64]uint64
}

// reach extends the window up to a number, and reports whether the number is in the window.
func (s *serialSet) reach(n uint32) bool {
	if !s.started {
		s.started, s.next = true, n
	}
	ahead := int32(n - s.next)
	if ahead > rdWindow { // all recorded numbers leave the window
		s.next, ahead = n-rdWindow, rdWindow
	}
	for ; ahead >= 0; ahead-- {
		s.bits[s.next/64%(rdWindow/64)] &^= 1 << (s.next % 64)
		s.next++
	}
	return int32(n-s.next) >= -rdWindow
}

// add records a number. It reports whether the number occurred before or is older than the window.
func (s *serialSet) add(n uint32) (before bool) {
	if !s.reach(n) {
		return true
	}
	word, bit := &s.bits[n/64%(rdWindow/64)], uint64(1)<<(n%64)
	before = *word&bit != 0
	*word |= bit
	return before
}

// has reports whether a number occurred. It is false for numbers outside the window.
func (s *serialSet) has(n uint32) bool {
	ahead := int32(n - s.next)
	return s.started && ahead < 0 && ahead >= -rdWindow && s.bits[n/64%(rdWindow/64)]>>(n%64)&1 != 0
}

// rdStream tells fresh payload from one engine to another apart from repeated payload. It uses the
// packets' numbers, as stream uses byte numbers for TCP.
type rdStream struct {
	seen, skipped   serialSet
	fresh, repeated uint64 // bytes of payload
	empty           uint64 // fresh packets without payload
	left            uint64 // of the fresh bytes, those that a skip gave up
	// again counts fresh bytes that were seen only in a retransmission.
	again uint64
}

// data adds a packet that leaves its sender.
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

// skip adds a skip that leaves its sender. If the skip gives up a part of a message that may have
// holes, its bytes count as given up, once.
func (s *rdStream) skip(d *RD) {
	if f := d.Bytes.Skip(); d.Flags&wire.RDDroppable != 0 && f.Count == 1 && !s.skipped.add(d.PSN) {
		s.left += uint64(f.Bytes)
	}
}
