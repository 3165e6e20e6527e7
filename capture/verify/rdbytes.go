package verify

import (
	"railbed/transports/wire"
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

// rdStream tells payload that one engine sends to another for the first time from
// repeated one, by the packets' numbers, as stream does for TCP by its bytes'.
type rdStream struct {
	started bool
	next    uint32 // behind the highest PSN so far
	// seen and skipped have a bit for each of the rdWindow PSNs before next, at PSN
	// modulo rdWindow.
	seen, skipped [rdWindow / 64]uint64

	fresh, repeated uint64 // bytes of payload
	left            uint64 // of the fresh ones, those that a skip gave up
	// unseen is bytes whose first sending passed without having been seen.
	unseen int64
}

// move makes a PSN one of the window, and says whether it is one.
func (s *rdStream) move(psn uint32) bool {
	if !s.started {
		s.started, s.next = true, psn
	}
	ahead := int32(psn - s.next)
	if ahead < -rdWindow {
		return false
	}
	for ; ahead >= 0; ahead-- {
		if ahead > rdWindow { // all that is there goes
			s.next = psn - rdWindow
			ahead = rdWindow
		}
		clearBit(&s.seen, s.next)
		clearBit(&s.skipped, s.next)
		s.next++
	}
	return true
}

// data takes a packet that leaves its sender.
func (s *rdStream) data(d *RD) {
	if !s.move(d.PSN) || hasBit(&s.seen, d.PSN) {
		s.repeated += uint64(d.Length)
		return
	}
	setBit(&s.seen, d.PSN)
	s.fresh += uint64(d.Length)
	if d.Flags&wire.RDRepeat != 0 {
		s.unseen += int64(d.Length)
	}
}

// skip takes one that leaves: what it gives up of a message that may have holes
// comes off, once.
func (s *rdStream) skip(d *RD) {
	f := d.Bytes.Skip()
	if d.Flags&wire.RDDroppable == 0 || f.Count != 1 || !s.move(d.PSN) || hasBit(&s.skipped, d.PSN) {
		return
	}
	setBit(&s.skipped, d.PSN)
	s.left += uint64(f.Bytes)
}

func hasBit(b *[rdWindow / 64]uint64, psn uint32) bool {
	return b[psn/64%(rdWindow/64)]>>(psn%64)&1 != 0
}
func setBit(b *[rdWindow / 64]uint64, psn uint32) { b[psn/64%(rdWindow/64)] |= 1 << (psn % 64) }
func clearBit(b *[rdWindow / 64]uint64, psn uint32) {
	b[psn/64%(rdWindow/64)] &^= 1 << (psn % 64)
}
