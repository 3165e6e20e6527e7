package rdchecks

import (
	"fmt"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
)

// placed checks that every message of reliable datagrams is placed exactly once. Packets do not
// show memory, but they prove the following. A receiver places a packet when its PSN arrives whole
// for the first time, and never again. So every byte of a message is placed once if
//
//   - each of the message's packets has its own PSN as it leaves the sender's NIC. The packets carry
//     disjoint pieces that together are the whole message, and a PSN that is retransmitted carries the
//     same piece,
//   - each of these PSNs arrives whole at the receiver's NIC, at least once,
//   - and the receiver acknowledges a PSN only after it arrived, and counts its bytes only once. Its
//     acknowledgements contain a cumulative PSN, a bitmap and the bytes received. They never exceed
//     the packets that arrived whole at its NIC or were skipped. A receiver that places a packet twice,
//     and acknowledges both copies, counts more bytes than arrived.
//
// A message that may have holes is placed when its missing part was skipped. A message that its
// sender canceled need not be placed, and is counted separately. Its receiver was informed by a
// skip without D, and had refused none of its packets. A message that was given up because its
// receiver refused it is not placed.
//
// The check reads the taps of the NICs. If they lost packets, or if one of them is missing,
// violations that rest on packets not seen are INCONCLUSIVE.
type placed struct {
	nics
	linger int64
	pairs  map[evidence.RDSpace]*placedPair
	live   int // messages that are not over

	messages, bytes, holed   uint64
	duplicates, trimmed      uint64
	canceled                 uint64 // messages
	givenUp, overlap         uint64 // messages; packets that carry bytes of another packet
	changed, beyond          uint64 // PSNs with two pieces, pieces beyond their message
	tooSoon, never, tooLarge uint64 // claims, PSNs that left the window, counts
	examples                 []string
}

// maxLive bounds the messages that are not over. maxPieces bounds the remembered pieces of each
// message: an engine sends a message in order.
const (
	maxLive   = 1 << 17
	maxPieces = 4 * evidence.RDWindow
)

// placedPair is a sequence space.
type placedPair struct {
	name string
	late bool // it began before the capture
	// next is one more than the highest PSN that left. missing is the first PSN that has not
	// arrived. slots holds the PSNs in between, at the PSN modulo its length, a power of two.
	next, missing uint32
	slots         []placedSlot
	received      uint32 // payload that arrived for the first time
	messages      map[uint32]*placedMessage
	over          evidence.Serials // messages
	gone, refused evidence.Serials // of these the canceled ones, and all refused ones
}

type placedSlot struct {
	message, position uint32
	length            uint16
	left, came        bool // came is also set for skipped PSNs
}

// placedMessage is a message that is not over.
type placedMessage struct {
	fields  wire.RDDataFields // of its first packet
	latest  int64             // time of the last packet seen
	have    uint32            // bytes that arrived
	holes   uint32            // bytes skipped
	packets int               // packets that left
	refused bool              // by the receiver
	gone    bool              // canceled or given up
	pieces  []piece           // ranges that left, joined
}

// piece is a range of the bytes of a message.
type piece struct{ from, to int64 }

// newPlaced makes the check.
func newPlaced() *placed { return &placed{pairs: map[evidence.RDSpace]*placedPair{}} }

// Begin implements Check.
func (k *placed) Begin(c *evidence.Capture) {
	k.capture = c
	k.linger = c.Linger()
}

// Packet implements Check.
func (k *placed) Packet(p *evidence.Packet) {
	if !p.Tap.NIC || p.Drop != "" || p.Direction == evidence.Unknown || !k.readable(p) {
		return
	}
	d := p.RD
	switch out := p.Direction == evidence.Out; {
	case d.Type == wire.RDData && out:
		k.leave(p)
	case d.Type == wire.RDData:
		k.arrive(p)
	case d.Type == wire.RDSkip && out:
		k.leaveSkip(p)
	case d.Type == wire.RDSkip:
		k.skip(p)
	case (d.Type == wire.RDAck || d.Type == wire.RDClose) && out:
		k.acknowledge(p)
	case d.Type == wire.RDNack && out:
		k.refuse(p)
	}
}

// at returns a PSN's slot.
func (s *placedPair) at(psn uint32) *placedSlot { return &s.slots[psn&uint32(len(s.slots)-1)] }

// within reports whether a PSN has a slot.
func (s *placedPair) within(psn uint32) bool {
	return serial(psn, s.missing) >= 0 && serial(psn, s.next) < 0
}

// extend adds slots up to a PSN. A packet counts as never arrived when a whole window left after
// it.
func (k *placed) extend(s *placedPair, psn uint32) {
	if serial(psn, s.next) > evidence.RDWindow { // far ahead, so that all PSNs in between are missing
		k.never += uint64(s.next - s.missing)
		s.next, s.missing = psn, psn
	}
	for ; serial(psn, s.next) >= 0; s.next++ {
		if used := int(s.next - s.missing); used >= evidence.RDWindow {
			k.never++
			k.exemplify("%s: PSN %d did not come, and %d more left after it", s.name, s.missing,
				evidence.RDWindow)
			s.missing++
			k.advance(s)
		} else if used == len(s.slots) {
			larger := &placedPair{slots: make([]placedSlot, max(16, 2*len(s.slots)))}
			for at := s.missing; at != s.next; at++ {
				*larger.at(at) = *s.at(at)
			}
			s.slots = larger.slots
		}
		*s.at(s.next) = placedSlot{}
	}
}

// advance moves missing past PSNs that have arrived.
func (k *placed) advance(s *placedPair) {
	for s.missing != s.next && s.at(s.missing).came {
		s.missing++
	}
}

// leaving returns the sequence space of a packet that leaves, with a slot for the packet. It
// returns nil if the PSN was sent before and has arrived.
func (k *placed) leaving(p *evidence.Packet) *placedPair {
	d := p.RD
	key := p.RDSpace(false)
	s := k.pairs[key]
	if s == nil {
		if k.full = k.full || len(k.pairs) >= maxPairs; k.full {
			return nil
		}
		first := firstPSN(d)
		s = &placedPair{name: pairName(p), late: first != uint32(d.Life>>32), next: first, missing: first,
			messages: map[uint32]*placedMessage{}}
		k.pairs[key] = s
	}
	if serial(d.PSN, s.missing) < 0 {
		return nil
	}
	k.extend(s, d.PSN)
	return s
}

// leaveSkip adds a skip that leaves. If some bytes of a canceled message have no PSN, the skip has
// a PSN without data.
func (k *placed) leaveSkip(p *evidence.Packet) {
	if s := k.leaving(p); s != nil {
		s.at(p.RD.PSN).left = true
	}
}

// leave adds data that leaves its sender.
func (k *placed) leave(p *evidence.Packet) {
	d := p.RD
	s := k.leaving(p)
	if s == nil {
		return
	}
	piece := placedSlot{message: d.Data.Message, position: d.Data.Position, length: d.Length, left: true}
	slot := s.at(d.PSN)
	if slot.left {
		if piece.came = slot.came; piece != *slot {
			k.changed++
			k.exemplify("%s: PSN %d was sent again with another part of a message", s.name, d.PSN)
		}
		return
	}
	piece.came = slot.came
	*slot = piece
	k.piece(s, p)
}

// piece adds a piece of a message that leaves for the first time.
func (k *placed) piece(s *placedPair, p *evidence.Packet) {
	f := &p.RD.Data
	m := s.messages[f.Message]
	switch {
	case m == nil && s.over.Has(f.Message):
		k.overlap++
		k.exemplify("%s: PSN %d is of message %d, which was over", s.name, p.RD.PSN, f.Message)
		return
	case m == nil:
		if k.full = k.full || k.live >= maxLive; k.full {
			return
		}
		m = &placedMessage{fields: *f}
		s.messages[f.Message] = m
		k.live++
		k.messages++
	case f.Total != m.fields.Total || f.Key != m.fields.Key || f.Offset != m.fields.Offset ||
		f.Imm != m.fields.Imm:
		k.changed++
		k.exemplify("%s: PSN %d contradicts earlier packets about message %d", s.name,
			p.RD.PSN, f.Message)
	}
	m.latest = p.Time
	m.packets++
	if k.full = k.full || len(m.pieces) >= maxPieces; k.full {
		return
	}
	from, to := int64(f.Position), int64(f.Position)+int64(p.RD.Length)
	if to > int64(m.fields.Total) {
		k.beyond++
		k.exemplify("%s: PSN %d goes to byte %d of message %d, which has %d", s.name, p.RD.PSN, to, f.Message,
			m.fields.Total)
	}
	if !m.cover(from, to) || m.fields.Total == 0 && m.packets > 1 {
		k.overlap++
		k.exemplify("%s: PSN %d carries bytes %d to %d of message %d, which another packet carries", s.name,
			p.RD.PSN, from, to, f.Message)
	}
}

// cover adds bytes to the part of a message that left. It returns false when some of the bytes had
// left before.
func (m *placedMessage) cover(from, to int64) bool {
	at, _ := slices.BinarySearchFunc(m.pieces, from, func(h piece, from int64) int {
		if h.to < from {
			return -1
		}
		return 1
	})
	last := at
	fresh := true
	for last < len(m.pieces) && m.pieces[last].from <= to {
		fresh = fresh && (min(to, m.pieces[last].to) <= max(from, m.pieces[last].from))
		last++
	}
	if last > at {
		from, to = min(from, m.pieces[at].from), max(to, m.pieces[last-1].to)
	}
	m.pieces = slices.Replace(m.pieces, at, last, piece{from, to})
	return fresh
}

// arrive adds data that arrives at its receiver.
func (k *placed) arrive(p *evidence.Packet) {
	d := p.RD
	s := k.pairs[p.RDSpace(false)]
	switch {
	case s == nil || serial(d.PSN, s.next) >= 0:
		k.strays++
		return
	case d.Trimmed:
		k.trimmed++
		return
	case serial(d.PSN, s.missing) < 0 || s.at(d.PSN).came:
		k.duplicates++
		return
	}
	slot := s.at(d.PSN)
	slot.came = true
	switch {
	case !slot.left:
		k.strays++
	case slot.message != d.Data.Message || slot.position != d.Data.Position || slot.length != d.Length:
		k.changed++
		k.exemplify("%s: PSN %d came with another part of a message than it left with", s.name, d.PSN)
	}
	s.received += uint32(d.Length)
	k.bytes += uint64(d.Length)
	if m := s.messages[d.Data.Message]; m != nil {
		m.have += uint32(d.Length)
		m.latest = p.Time
		k.whole(s, d.Data.Message, m)
	}
	k.advance(s)
}

// whole ends a message when all its bytes arrived or were given up.
func (k *placed) whole(s *placedPair, number uint32, m *placedMessage) {
	if !m.gone && uint64(m.have)+uint64(m.holes) != uint64(m.fields.Total) {
		return
	}
	switch {
	case m.gone:
	case m.refused:
		k.refusal(s, number)
	case m.holes > 0:
		k.holed++
	}
	delete(s.messages, number)
	k.live--
	s.over.Add(number)
}

// skip notes packets that were skipped and will not arrive.
func (k *placed) skip(p *evidence.Packet) {
	f := p.RD.Bytes.Skip()
	s := k.pairs[p.RDSpace(false)]
	if s == nil || f.Count > evidence.RDWindow {
		k.strays++
		return
	}
	m := s.messages[f.Message]
	for psn := p.RD.PSN; psn != p.RD.PSN+f.Count; psn++ {
		if !s.within(psn) || s.at(psn).came {
			continue
		}
		s.at(psn).came = true
		if m != nil && p.RD.Flags&wire.RDDroppable != 0 {
			m.holes += f.Bytes
		}
	}
	k.advance(s)
	if m == nil {
		return
	}
	if m.latest = p.Time; p.RD.Flags&wire.RDDroppable == 0 {
		m.gone = true
		if s.gone.Add(f.Message); m.refused {
			k.refusal(s, f.Message)
		} else {
			k.canceled++
		}
	}
	k.whole(s, f.Message, m)
}

// refuse notes that a receiver refused a message.
func (k *placed) refuse(p *evidence.Packet) {
	s := k.pairs[p.RDSpace(true)]
	if s == nil {
		return
	}
	switch f := p.RD.Bytes.Nack(); f.Reason {
	case wire.RDNoRegion, wire.RDNotWritable, wire.RDBounds:
		switch m := s.messages[f.Message]; {
		case m != nil:
			m.refused = true
		case s.over.Has(f.Message) && !s.gone.Has(f.Message) && !s.refused.Has(f.Message):
			// all its bytes arrived before it was refused
			k.refusal(s, f.Message)
		}
	}
}

// refusal counts a message that was not placed, because its receiver refused it.
func (k *placed) refusal(s *placedPair, number uint32) {
	s.refused.Add(number)
	k.givenUp++
	k.exemplify("%s: message %d was refused and given up", s.name, number)
}

// acknowledge compares a receiver's acknowledgement with the packets that arrived at the receiver.
func (k *placed) acknowledge(p *evidence.Packet) {
	s := k.pairs[p.RDSpace(true)]
	if s == nil {
		return // only a probe was sent
	}
	b := p.RD.Bytes
	if serial(p.RD.PSN, s.next) > 0 {
		k.tooSoon++
		k.exemplify("%s: PSN %d is acknowledged, but only PSNs before %d have left",
			s.name, p.RD.PSN-1, s.next)
	}
	claims(b, s.missing, s.next+evidence.RDWindow, func(psn uint32) {
		switch within := s.within(psn); {
		case within && s.at(psn).came:
		case within && !s.at(psn).left:
			k.strays++
		default:
			k.tooSoon++
			k.exemplify("%s: PSN %d is acknowledged at %s and has not come", s.name, psn,
				evidence.ClockTime(p.Time))
		}
	})
	if p.RD.Type == wire.RDAck && !s.late && serial(b.Ack().Received, s.received) > 0 {
		k.tooLarge++
		k.exemplify("%s: %d bytes are acknowledged at %s, but %d came, each packet counted once",
			s.name, b.Ack().Received,
			evidence.ClockTime(p.Time), s.received)
	}
}

func (k *placed) exemplify(format string, args ...any) {
	if len(k.examples) < 8 {
		k.examples = append(k.examples, fmt.Sprintf(format, args...))
	}
}
