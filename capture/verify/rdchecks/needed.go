package rdchecks

import (
	"fmt"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// needed checks that no packet of reliable datagrams is retransmitted without need.
//
// Data that leaves its sender's NIC with a PSN that left before is a retransmission. Timestamps
// tell the copies of a PSN apart. A retransmission is needed when every earlier copy was lost. A
// copy was lost if the capture records that it was dropped or trimmed, or if its receiver refused
// it in a NACK. It was also lost if its receiver did not take it although it arrived, or if it
// vanished without a record.
//
// A retransmission is spurious when an earlier copy arrived whole at its receiver's NIC, before or
// after the retransmission left, and no loss of that copy is known. One kind of spurious
// retransmission is excused: if every acknowledgement of the PSN was lost on its way, the sender
// cannot know.
//
// A receiver may not take a copy that arrived at the NIC, because the receiver's socket had no room
// or the checksum was wrong. An engine processes packets in the order of arrival. So the copy was
// not taken if an acknowledgement without it leaves that covers a later packet, or answers a later
// probe.
type needed struct {
	nics
	linger int64
	pairs  map[evidence.RDSpace]*neededPair
	again  int // entries in the pairs' again
	// unsent are packets whose first copies faults dropped before they passed the tap of their NIC.
	unsent map[unsentPacket]bool

	sent, repeats, needed, vanished, excused uint64
	known, early, underWay                   uint64 // spurious retransmissions, see judge
	unseen, open                             uint64
	examples                                 []string
}

// unsentPacket is a packet of a sequence space.
type unsentPacket struct {
	space evidence.RDSpace
	psn   uint32
}

// neededPair is a sequence space.
type neededPair struct {
	name string
	// next is one more than the highest PSN that left. base is the first PSN that is not
	// acknowledged as far as the sender's NIC has seen. slots holds the PSNs in between, at the PSN
	// modulo its length, a power of two.
	next, base uint32
	slots      []neededSlot
	claimed    uint32                 // the receiver acknowledged all PSNs before it
	again      map[uint32]*sentCopies // by PSN, packets that were sent more than once
	probeAt    int64                  // when a probe arrived at the receiver
	probeStamp uint32
}

// neededSlot is the state of a PSN.
type neededSlot struct {
	first   sentCopy
	ackAt   int64 // first acknowledgement by the receiver, 0 for never
	seen    bool  // the first copy was seen
	again   bool  // copies are in the pair's again
	ackLost bool  // an acknowledgement was dropped
	known   bool  // an acknowledgement arrived
}

// sentCopy is one transmission of a packet.
type sentCopy struct {
	left, came int64 // came is 0 for never
	stamp      uint32
	lost       bool // a loss is known
	spoiled    bool // a fault changed it, so that its arrival does not count
	known      bool // an acknowledgement of the PSN had arrived before it left
	excused    bool // all acknowledgements had been lost
}

// sentCopies are all copies of a PSN, at most maxCopies.
type sentCopies struct {
	copies []sentCopy
}

const (
	maxCopies = 64
	// maxAgain bounds the number of retransmitted packets that are remembered.
	maxAgain = 1 << 16
)

// newNeeded makes the check.
func newNeeded() *needed {
	return &needed{pairs: map[evidence.RDSpace]*neededPair{}, unsent: map[unsentPacket]bool{}}
}

// Begin implements Check.
func (k *needed) Begin(c *evidence.Capture) {
	k.capture = c
	k.linger = c.Linger()
}

// Packet implements Check.
func (k *needed) Packet(p *evidence.Packet) {
	if p.RD != nil && p.RD.Clear() && (p.Drop != "" || p.Verdict == "trim") {
		k.lose(p)
		return
	}
	if !p.Tap.NIC || p.Drop != "" || p.Direction == evidence.Unknown || !k.readable(p) {
		return
	}
	d := p.RD
	said := d.Type == wire.RDAck || d.Type == wire.RDClose || d.Type == wire.RDNack
	s := k.pairs[p.RDSpace(said)]
	switch out := p.Direction == evidence.Out; {
	case d.Type == wire.RDData && out:
		k.leave(p, s)
	case s == nil:
	case d.Type == wire.RDData:
		if one := s.find(d); one == nil {
			k.stray(s, d)
		} else if d.Trimmed {
			one.lost = true
		} else if one.came == 0 && !one.spoiled {
			one.came, one.lost = p.Time, false
		}
	case d.Type == wire.RDProbe && !out:
		s.probeAt, s.probeStamp = p.Time, d.Bytes.ProbeTimestamp()
	case d.Type == wire.RDNack && out:
		s.refuse(d.PSN, p.Time)
	case said && d.Type != wire.RDNack && out:
		s.say(p)
	case said && d.Type != wire.RDNack:
		s.learn(d)
	}
}

// Event implements Watcher.
func (k *needed) Event(p *evidence.Packet) {
	if p.RD != nil && p.RD.Clear() && p.Spoiled() {
		k.lose(p)
	}
}

// stray counts data that arrived and was not seen to leave, except copies of acknowledged packets.
func (k *needed) stray(s *neededPair, d *evidence.RD) {
	if serial(d.PSN, s.base) >= 0 {
		k.strays++
	}
}

func (s *neededPair) at(psn uint32) *neededSlot { return &s.slots[psn&uint32(len(s.slots)-1)] }

func (s *neededPair) within(psn uint32) bool {
	return serial(psn, s.base) >= 0 && serial(psn, s.next) < 0
}

// find returns the copy that a packet belongs to, or nil for none.
func (s *neededPair) find(d *evidence.RD) *sentCopy {
	if copies := s.again[d.PSN]; copies != nil {
		for i := range copies.copies {
			if copies.copies[i].stamp == d.Data.Timestamp {
				return &copies.copies[i]
			}
		}
		return nil
	}
	if s.within(d.PSN) {
		if slot := s.at(d.PSN); slot.seen && slot.first.stamp == d.Data.Timestamp {
			return &slot.first
		}
	}
	return nil
}

// leave adds data that leaves its sender.
func (k *needed) leave(p *evidence.Packet, s *neededPair) {
	d := p.RD
	k.sent++
	if s == nil {
		if k.full = k.full || len(k.pairs) >= maxPairs; k.full {
			return
		}
		first := firstPSN(d)
		s = &neededPair{name: pairName(p), next: first, base: first, claimed: first,
			again: map[uint32]*sentCopies{}}
		k.pairs[p.RDSpace(false)] = s
	}
	if serial(d.PSN, s.base) < 0 && s.again[d.PSN] == nil { // acknowledged, and forgotten
		k.repeats++
		k.known++
		k.exemplify("%s: PSN %d left at %s although its acknowledgement had come", s.name, d.PSN,
			evidence.ClockTime(p.Time))
		return
	}
	one := sentCopy{left: p.Time, stamp: d.Data.Timestamp}
	copies := s.again[d.PSN]
	if copies == nil {
		s.extend(d.PSN)
		slot := s.at(d.PSN)
		if !slot.seen {
			slot.seen, slot.first = true, one
			switch {
			case d.Flags&wire.RDRepeat == 0:
			case k.unsent[unsentPacket{p.RDSpace(false), d.PSN}]:
				k.repeats++
				k.needed++
			default:
				k.unseen++
			}
			return
		}
		if k.again >= maxAgain {
			k.sweep(p.Time)
		}
		if k.full = k.full || k.again >= maxAgain; k.full {
			return
		}
		slot.again = true
		copies = &sentCopies{copies: []sentCopy{slot.first}}
		s.again[d.PSN] = copies
		k.again++
	}
	k.repeats++
	if len(copies.copies) == maxCopies {
		k.full = true
		return
	}
	one.known = serial(d.PSN, s.base) < 0 || s.at(d.PSN).known
	if !one.known {
		slot := s.at(d.PSN)
		one.excused = slot.ackLost || slot.ackAt != 0 && p.Time-slot.ackAt > k.linger
	}
	copies.copies = append(copies.copies, one)
}

// extend adds slots up to a PSN.
func (s *neededPair) extend(psn uint32) {
	if serial(psn, s.next) > evidence.RDWindow {
		s.next, s.base, s.claimed = psn, psn, psn
	}
	for ; serial(psn, s.next) >= 0; s.next++ {
		if used := int(s.next - s.base); used >= 2*evidence.RDWindow { // acknowledgements were not seen
			s.base++
		} else if used == len(s.slots) {
			larger := &neededPair{slots: make([]neededSlot, max(16, 2*len(s.slots)))}
			for at := s.base; at != s.next; at++ {
				*larger.at(at) = *s.at(at)
			}
			s.slots = larger.slots
		}
		*s.at(s.next) = neededSlot{}
	}
}

// lose takes a record of a packet that was dropped or trimmed, or that a fault changed.
func (k *needed) lose(p *evidence.Packet) {
	d := p.RD
	switch d.Type {
	case wire.RDData:
		if p.Tap.NIC && p.Direction == evidence.Out && p.Drop != "" && len(k.unsent) < maxAgain {
			k.unsent[unsentPacket{p.RDSpace(false), d.PSN}] = true
		}
		if s := k.pairs[p.RDSpace(false)]; s != nil {
			if one := s.find(d); one != nil && one.came == 0 {
				one.lost, one.spoiled = true, p.Spoiled()
			}
		}
	case wire.RDAck, wire.RDClose:
		if s := k.pairs[p.RDSpace(true)]; s != nil {
			claims(d.Bytes, s.base, s.next, func(psn uint32) { s.at(psn).ackLost = true })
		}
	}
}

// refuse notes that a receiver did not take copies of a PSN that had arrived.
func (s *neededPair) refuse(psn uint32, now int64) {
	if copies := s.again[psn]; copies != nil {
		for i := range copies.copies {
			copies.copies[i].refused(now)
		}
	} else if s.within(psn) {
		s.at(psn).first.refused(now)
	}
}

// refused notes that the copy, if it arrived before, was not taken.
func (c *sentCopy) refused(before int64) {
	if c.came != 0 && c.came < before {
		c.lost = true
	}
}

// came returns when a PSN first arrived whole, 0 for never.
func (s *neededPair) came(psn uint32) int64 {
	if !s.at(psn).again {
		return s.at(psn).first.came
	}
	first := int64(0)
	for _, c := range s.again[psn].copies {
		if c.came != 0 && (first == 0 || c.came < first) {
			first = c.came
		}
	}
	return first
}

// say takes an acknowledgement that leaves the receiver. It notes which packets the receiver has,
// and which it lacks although a later packet was received.
func (s *neededPair) say(p *evidence.Packet) {
	b, psn := p.RD.Bytes, p.RD.PSN
	from := s.base
	if serial(s.claimed, from) > 0 {
		from = s.claimed // earlier PSNs were acknowledged before
	}
	latest := int64(0)
	claims(b, from, s.next, func(psn uint32) {
		if slot := s.at(psn); slot.ackAt == 0 {
			slot.ackAt = p.Time
		}
		latest = max(latest, s.came(psn))
	})
	if serial(psn, s.claimed) > 0 && serial(psn, s.next) <= 0 {
		s.claimed = psn
	}
	if b.Type() != wire.RDAck {
		return
	}
	if s.probeAt != 0 && b.Ack().Timestamp == s.probeStamp {
		latest = max(latest, s.probeAt)
	}
	words := b.Ack().Words
	for at := psn; latest > 0 && s.within(at); at++ {
		if ahead := at - psn; ahead > 0 && ahead <= 64*uint32(words) {
			if word, bit := wire.RDAckBit(ahead); b.AckWord(word)&bit != 0 {
				continue
			}
		}
		s.refuse(at, latest)
	}
}

// learn takes an acknowledgement that arrives at the sender.
func (s *neededPair) learn(d *evidence.RD) {
	claims(d.Bytes, s.base, s.next, func(psn uint32) { s.at(psn).known = true })
	if serial(d.PSN, s.base) > 0 && serial(d.PSN, s.next) <= 0 {
		s.base = d.PSN
	}
}

// sweep judges retransmitted packets that are too old to be under way. Result judges the others.
func (k *needed) sweep(now int64) {
	for _, s := range k.pairs {
		for psn, copies := range s.again {
			if last := copies.copies[len(copies.copies)-1]; now-last.left > k.linger {
				k.judge(s, psn, copies, now)
				delete(s.again, psn)
				if s.within(psn) {
					s.at(psn).again = false
					s.at(psn).first = last
				}
				k.again--
			}
		}
	}
}

// judge counts the copies of a packet that was retransmitted.
func (k *needed) judge(s *neededPair, psn uint32, copies *sentCopies, now int64) {
	var came *sentCopy // the first that arrived and was taken
	open, vanished := false, false
	for i := range copies.copies {
		c := &copies.copies[i]
		switch {
		case i == 0:
		case came == nil && open:
			k.open++
		case came == nil:
			if k.needed++; vanished {
				k.vanished++
			}
		case c.known:
			k.known++
			k.exemplify("%s: PSN %d left at %s although its acknowledgement had come", s.name, psn,
				evidence.ClockTime(c.left))
		case c.excused:
			k.excused++
		case came.came < c.left:
			k.early++
			k.exemplify("%s: PSN %d left at %s although it had come at %s",
				s.name, psn, evidence.ClockTime(c.left),
				evidence.ClockTime(came.came))
		default:
			k.underWay++
			k.exemplify("%s: PSN %d left at %s while it was under way, and came at %s", s.name, psn,
				evidence.ClockTime(c.left), evidence.ClockTime(came.came))
		}
		switch {
		case c.lost:
		case c.came != 0 && came == nil:
			came = c
		case c.came == 0:
			vanished = true
			open = open || now-c.left <= k.linger
		}
	}
}

// Result implements Check.
func (k *needed) Result() evidence.Result {
	for _, s := range k.pairs {
		for _, psn := range sortedPSNs(s) {
			k.judge(s, psn, s.again[psn], k.capture.End)
		}
	}
	r := evidence.Result{Name: "that " + spec.ThatRDNeeded}
	f := evidence.Finding{Unclear: k.doubts()}
	spurious := k.known + k.early + k.underWay
	var wrong []string
	for _, line := range []struct {
		count uint64
		what  string
	}{
		{k.known, "packets were sent again though their acknowledgement had come"},
		{k.early, "packets were sent again, although the first copy had come"},
		{k.underWay, "packets were sent again while they were under way, and came"},
	} {
		if line.count > 0 {
			wrong = append(wrong, plural.Count(line.count, line.what))
		}
	}
	if wrong = append(wrong, k.examples...); len(f.Unclear) > 0 {
		f.Unclear = append(f.Unclear, wrong...)
	} else {
		f.Absent = wrong
	}
	if k.sent == 0 {
		f.Unclear = append(f.Unclear, "no data left a node")
	}
	if k.unseen > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d packets were sent again that were not seen before",
			k.unseen))
	}
	if k.open > 0 {
		f.Unclear = append(f.Unclear, plural.Text(
			"%d packets were sent again whose first copies were under way at the end", k.open))
	}
	r.Measured = map[string]float64{
		"sent": float64(k.sent), "again": float64(k.repeats), "needed": float64(k.needed),
		"vanished": float64(k.vanished), "spurious": float64(spurious),
		"acknowledged": float64(k.known), "arrived": float64(k.early), "under-way": float64(k.underWay),
		"acknowledgement-lost": float64(k.excused),
	}
	r.Summary = plural.Text("of %d packets %d were retransmitted: %d because every earlier copy was lost, "+
		"%d because acknowledgements were lost, %d without need",
		k.sent, k.repeats, k.needed, k.excused, spurious)
	k.capture.Conclude(&r, k.need(), f)
	return r
}

func sortedPSNs(s *neededPair) []uint32 {
	psns := make([]uint32, 0, len(s.again))
	for psn := range s.again {
		psns = append(psns, psn)
	}
	slices.Sort(psns)
	return psns
}

func (k *needed) exemplify(format string, args ...any) {
	if len(k.examples) < 8 {
		k.examples = append(k.examples, fmt.Sprintf(format, args...))
	}
}
