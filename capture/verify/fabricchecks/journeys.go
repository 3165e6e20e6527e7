package fabricchecks

import (
	"maps"
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
)

// journeys matches packets that leave one port with packets that arrive at another. An arriving
// packet is matched with the packet of the same id. If no packet of that id is under way, it is
// matched with an equal packet, until a drop record shows that this equal packet did not arrive.
// Equality is needed because ids at kernels' taps are guesses, and a copy that a link makes has an
// id of its own.
//
// Equal packets form a multiset: whichever of them arrives, one less is under way. Every packet
// that left is counted once, as arrived, lost, under way, ambiguous, or taken out. The counts
// therefore add up.
type journeys struct {
	capture  *evidence.Capture
	linger   int64
	numbered bool // ids are exact
	// under are packets in the order in which they left. under[front] is the first that may still
	// be under way. base is the number of under[0].
	under   []journey
	front   int
	base    int64
	numbers map[uint64]int64       // of packets under way, by id
	classes map[uint64]class       // equal packets under way, by identity
	drops   map[uint64]dropRecords // drop records that explain no packet yet, by identity
	// changes counts records of faults that changed packets, where ids are guesses, by identity.
	changes map[uint64]uint32
	// copies counts records of faults that copied packets, of which no copy has arrived, by identity.
	copies  map[uint64]uint32
	guessed map[uint64]journey // packets that arrived under another id, by id
	splits  splits[int64]      // packets that routers may fragment, by number
	// ahead are packets that arrived before they left, by identity. It is nil if these are not matched.
	ahead map[uint64]strangers
	// early are the packets that left in the capture's first moments. Other packets that arrive
	// then may have left before the capture began.
	early map[uint64]bool
	// unsound reports whether faults change packets before they pass the tap of a NIC.
	unsound bool

	arrived uint64
	// underWay counts packets that left so late that they may still arrive. ambiguous counts packets
	// that are equal to others: it is not known whether they left so late.
	underWay, ambiguous, lost uint64
	// excused counts packets that a fault changed, held or misrouted, and that did not arrive as they left.
	// altered counts those that have a record in changes. They may have arrived as other packets.
	excused, altered uint64
	// acausal counts packets that arrived before they left, by the times of the two ports.
	acausal uint64
	// strays counts packets that arrived and were not seen to leave.
	strays  uint64
	short   bool              // more packets were under way than are remembered
	reasons map[string]uint64 // why packets were lost, as recorded
	// onLost is called for each packet that was lost. It may be nil.
	onLost func(j journey)
}

// journeysMost bounds the number of remembered packets, of 130 bytes each.
const journeysMost = 1 << 19

// journey is a packet under way.
type journey struct {
	id, identity uint64
	left         int64
	ordinal      uint64 // in its flow, where it left
	// earliest and latest bound the ordinal of a packet that arrived: it may be any of several
	// equal packets.
	earliest, latest uint64
	reason           string // why it was lost
	next             int64  // number of the next equal packet, 0 for none
	// stream is the caller's number for the flow or the pair of the packet.
	stream int
	// split reports whether the packet arrived as fragments that a router made.
	split bool
	// apart reports whether the packet is followed and not counted.
	apart, over bool
	excuse      excuse
}

// excuse is the way in which a fault can keep a packet from arriving.
type excuse uint8

// Excuses.
const (
	none    excuse = iota
	held           // The fault may hold the packet until the end of the run.
	changed        // Switches or the receiver may refuse the packet, or it arrives at another NIC.
)

// strangers are equal packets that arrived and were not seen to leave: their count, and the time of
// the latest arrival.
type strangers struct {
	count int
	at    int64
}

// class holds equal packets since none of them was under way. first is the number of the first that
// may be under way, and last the number of the last. under counts those under way, and since all of
// them. ordinal is the least ordinal among them.
type class struct {
	first, last int64
	under       uint32
	since       uint32
	ordinal     uint64
}

// dropRecords holds the count of drop records of equal packets, and the reason of the first.
type dropRecords struct {
	count  uint32
	reason string
}

// newJourneys makes the table. With ahead, packets that arrive before they leave are matched, and
// packets that never left are counted.
func newJourneys(c *evidence.Capture, ahead bool, onLost func(journey)) *journeys {
	s := &journeys{
		capture:  c,
		linger:   c.Linger(),
		numbered: c.Numbered(),
		base:     1,
		numbers:  map[uint64]int64{},
		classes:  map[uint64]class{},
		drops:    map[uint64]dropRecords{},
		changes:  map[uint64]uint32{},
		copies:   map[uint64]uint32{},
		guessed:  map[uint64]journey{},
		splits:   newSplits[int64](c),
		reasons:  map[string]uint64{},
		onLost:   onLost,
	}
	if ahead {
		s.ahead, s.early = map[uint64]strangers{}, map[uint64]bool{}
	}
	return s
}

// left returns how many packets are counted.
func (s *journeys) left() uint64 { return s.arrived + s.lost + s.excused + s.underWay + s.ambiguous }

// start adds a packet that leaves. A packet that has already arrived is matched at once.
func (s *journeys) start(p *evidence.Packet, j journey) (arrivedBefore bool) {
	if s.unsound && p.Unsound() {
		j.excuse = changed
	}
	j.id, j.identity, j.left = p.ID, p.Identity(), p.Time
	// An arrival that is earlier by more than the clocks of two taps differ is not of this packet.
	// It was a copy, or a packet that no tap saw leave.
	before, arrived := s.ahead[j.identity]
	if arrived && j.left-before.at > int64(evidence.StampSlack) {
		s.strays += uint64(before.count)
		delete(s.ahead, j.identity)
		arrived = false
	}
	if arrived {
		if before.count--; before.count == 0 {
			delete(s.ahead, j.identity)
		} else {
			s.ahead[j.identity] = before
		}
		s.acausal++
		if !j.apart {
			s.arrived++
		}
		return true
	}
	if s.early != nil && j.left-s.capture.First < s.linger && len(s.early) < journeysMost {
		s.early[j.identity] = true
	}
	if len(s.under)-s.front >= journeysMost {
		s.evict(j.left)
	}
	s.advance()
	number := s.base + int64(len(s.under))
	s.under = append(s.under, j)
	s.splits.begin(p, number)
	s.numbers[j.id] = number
	of, others := s.classes[j.identity]
	if others {
		s.at(of.last).next = number
	} else {
		of.first, of.ordinal = number, j.ordinal
	}
	of.last, of.under, of.since = number, of.under+1, of.since+1
	s.classes[j.identity] = of
	return false
}

func (s *journeys) at(number int64) *journey { return &s.under[number-s.base] }

// evict gives up the oldest packet under way.
func (s *journeys) evict(now int64) {
	oldest := &s.under[s.front]
	s.short = s.short || now-oldest.left < s.linger
	s.missing(s.remove(s.base+int64(s.front)), now, 1)
}

// advance forgets packets before the first one under way.
func (s *journeys) advance() {
	for s.front < len(s.under) && s.under[s.front].over {
		s.front++
	}
	if s.front > 1024 && s.front > len(s.under)/2 {
		s.base += int64(s.front)
		s.under = s.under[:copy(s.under, s.under[s.front:])]
		s.front = 0
	}
}

// remove ends the journey of a packet that is under way.
func (s *journeys) remove(number int64) journey {
	j := s.at(number)
	j.over = true
	if s.numbers[j.id] == number {
		delete(s.numbers, j.id)
	}
	of := s.classes[j.identity]
	if of.under--; of.under == 0 {
		delete(s.classes, j.identity)
		return *j
	}
	for s.at(of.first).over {
		of.first = s.at(of.first).next
	}
	s.classes[j.identity] = of
	return *j
}

// take removes the packet that arrives, or else the first equal packet that left.
func (s *journeys) take(id, identity uint64) (j journey, known bool) {
	of, known := s.classes[identity]
	if !known {
		return journey{}, false
	}
	number, own := s.numbers[id]
	if own = own && s.at(number).identity == identity; !own {
		number = of.first
	}
	earliest, latest := of.ordinal, s.at(of.last).ordinal
	if j = s.remove(number); own && s.numbered {
		earliest, latest = j.ordinal, j.ordinal
	}
	j.earliest, j.latest = earliest, latest
	if !own && !j.apart && len(s.guessed) < journeysMost {
		s.guessed[j.id] = j
	}
	return j, true
}

// own removes the packet of an id. If another packet was matched in its place, that packet counts
// as a stray: it had not left, or had arrived before.
func (s *journeys) own(id uint64) (j journey, known bool) {
	if number, under := s.numbers[id]; under {
		return s.remove(number), true
	}
	if j, known = s.guessed[id]; known {
		delete(s.guessed, id)
		s.arrived--
		s.strays++
	}
	return j, known
}

// harm takes the record of a fault's effect on a packet.
func (s *journeys) harm(p *evidence.Packet, by excuse) {
	if !s.numbered {
		if by == changed && len(s.changes) < journeysMost {
			s.changes[p.Identity()]++
		}
	} else if number, under := s.numbers[p.ID]; under {
		s.at(number).excuse = max(s.at(number).excuse, by)
	}
}

// spoiled takes the record of a packet that was trimmed, or that a fault changed or misrouted. A fault at a
// kernel's NIC acts before the tap.
func (s *journeys) spoiled(p *evidence.Packet) {
	if p.Tap.NIC && !s.numbered {
		s.unsound = true
		return
	}
	s.harm(p, changed)
}

// copied takes the record of a fault that copied a packet.
func (s *journeys) copied(p *evidence.Packet) {
	if len(s.copies) < journeysMost {
		s.copies[p.Identity()]++
	}
}

// arrive ends the journey of an arriving packet, if the packet was seen to leave.
func (s *journeys) arrive(p *evidence.Packet) (j journey, known bool) {
	identity := p.Identity()
	if number, under := s.numbers[p.ID]; under && s.at(number).excuse == changed &&
		s.at(number).identity != identity {
		s.lose(s.remove(number), unexplained)
		return journey{}, false
	}
	if j, known = s.take(p.ID, identity); !known {
		number, part, complete := s.splits.add(p)
		switch known = complete && number >= s.base && !s.at(number).over; {
		case known:
			j = s.remove(number)
			j.split, j.earliest, j.latest = true, j.ordinal, j.ordinal
		case part:
			return journey{}, false
		}
	}
	switch {
	case known && !j.apart:
		s.arrived++
	case !known && s.copies[identity] > 0:
		s.copies[identity]--
		s.strays++
	case !known && s.ahead != nil && (p.Time-s.capture.First >= s.linger || s.early[identity]):
		if len(s.ahead) >= journeysMost {
			s.short = true
			s.settle()
		}
		s.ahead[identity] = strangers{s.ahead[identity].count + 1, p.Time}
	}
	return j, known && !j.apart
}

// settle counts packets that arrived and have not left as strays.
func (s *journeys) settle() {
	for _, of := range s.ahead {
		s.strays += uint64(of.count)
	}
	clear(s.ahead)
}

// note takes a drop record. If no packet under way has the record's id, the record explains an
// equal packet.
func (s *journeys) note(p *evidence.Packet) {
	reason := p.Tap.Name + " " + p.Drop
	if j, known := s.own(p.ID); known {
		s.lose(j, reason)
		return
	}
	identity := p.Identity()
	d := s.drops[identity]
	if d.count++; d.reason == "" {
		d.reason = reason
	}
	if len(s.drops) < journeysMost {
		s.drops[identity] = d
	}
}

// forget ends a packet's journey, if it is under way, without counting it.
func (s *journeys) forget(p *evidence.Packet) (known bool) {
	j, known := s.own(p.ID)
	if !known {
		j, known = s.take(p.ID, p.Identity())
	}
	return known && !j.apart
}

// missing counts a packet that has not arrived. since is the number of equal packets since none was
// under way.
func (s *journeys) missing(j journey, now int64, since uint32) {
	if s.changes[j.identity] > 0 {
		s.changes[j.identity]--
		if j.excuse = changed; !j.apart {
			s.altered++
		}
		s.lose(j, unexplained)
		return
	}
	if d := s.drops[j.identity]; d.count > 0 {
		d.count--
		s.drops[j.identity] = d
		s.lose(j, d.reason)
		return
	}
	switch late := now-j.left < s.linger; {
	case !late:
		s.lose(j, unexplained)
	case j.apart:
	case since > 1:
		s.ambiguous++
	default:
		s.underWay++
	}
}

// unexplained is the reason of packets that did not arrive and have no record of a drop.
const unexplained = "no record of a drop"

// lose counts a lost packet.
func (s *journeys) lose(j journey, reason string) {
	switch {
	case j.apart:
		return
	case j.excuse == changed, j.excuse == held && reason == unexplained:
		s.excused++
		return
	}
	j.reason = reason
	s.lost++
	if _, known := s.reasons[reason]; known || len(s.reasons) < evidence.MaxDetails*10 {
		s.reasons[reason]++
	} else {
		s.reasons["other reasons"]++
	}
	if s.onLost != nil {
		s.onLost(j)
	}
}

// finish gives up all packets under way.
func (s *journeys) finish(now int64) {
	for i := range s.under {
		if j := s.under[i]; !j.over {
			s.missing(j, now, s.classes[j.identity].since)
		}
	}
	clear(s.classes)
	clear(s.numbers)
	s.short = s.short || s.splits.full
	s.under = nil
	if s.ahead != nil {
		s.settle()
	}
}

// losses returns lines with the number of lost packets for each reason.
func (s *journeys) losses(what string) (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		lines = append(lines, plural.Text("%d "+what+" were lost: %s", s.reasons[reason], reason))
	}
	return lines
}

// doubts returns reasons why the counts may be wrong.
func (s *journeys) doubts() (lines []string) {
	if s.short {
		lines = append(lines, "more packets at once than the check can remember")
	}
	if s.ambiguous > 0 {
		lines = append(lines, plural.Text(
			"%d packets that equal others have not arrived: lost, or under way at the end", s.ambiguous))
	}
	if s.acausal > 0 {
		lines = append(lines, plural.Text("%d packets arrived before they left: the clocks of ports differ",
			s.acausal))
	}
	return lines
}
