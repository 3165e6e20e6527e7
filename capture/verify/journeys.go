package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// journeys match packets that leave one port with those that arrive at another. A packet
// that arrives is the one of its id. Where none of that id is under way, it is some
// packet that equals it, until a record of a drop says that this one did not arrive: ids
// of kernels' taps are guesses, and a copy that a link makes has an id of its own. Equal
// packets are a multiset then: whichever of them arrives, one less is under way. Every
// packet that left is counted once, as arrived, lost, under way, untold, or taken out; so
// the counts add up.
type journeys struct {
	capture  *Capture
	linger   int64
	numbered bool // ids are no guesses
	// under are packets as they left, from front on the first that is under way and
	// those behind it. base is the number of the first of all.
	under   []journey
	front   int
	base    int64
	numbers map[uint64]int64     // of packets under way, by id
	classes map[uint64]class     // equal packets under way, by identity
	drops   map[uint64]drops     // records of drops that explain no packet yet, by identity
	guessed map[uint64]journey   // packets that arrived under the id of another, by id
	ahead   map[uint64]strangers // packets that arrived before they left, by identity, if matched; else nil
	// early are the packets that left in the capture's first moments. Others that arrive
	// then may have left before it began.
	early map[uint64]bool

	arrived uint64
	// underWay are packets that left so late that they may still arrive; of untold
	// ones, which equal others, it is not known whether they left so late.
	underWay, untold, lost uint64
	// acausal are packets that arrived before they left, by the times of the two ports.
	acausal uint64
	// strays are packets that arrived and were not seen to leave.
	strays  uint64
	short   bool              // there were more packets under way than are remembered
	reasons map[string]uint64 // why packets were lost, as recorded
	// mourn is called for each packet that was lost. It may be nil.
	mourn func(j journey)
}

// journeysMost bounds the packets that are remembered, 120 bytes each.
const journeysMost = 1 << 19

// journey is a packet on its way.
type journey struct {
	id, identity uint64
	left         int64
	ordinal      uint64 // in its flow, where it left
	// earliest and latest bound the ordinal of a packet that arrived: it may be any of those that equal it.
	earliest, latest uint64
	reason           string // why it was lost
	next             int64  // number of the next equal packet, 0 is none
	// apart says that the packet is followed and not counted.
	apart, over bool
}

// strangers are equal packets that arrived and were not seen to leave: how many, and when the latest arrived.
type strangers struct {
	count int
	at    int64
}

// class is equal packets since none was under way: the numbers of the first that may be
// under way and of the last, how many are under way, how many there were, and the least
// ordinal of these.
type class struct {
	first, last int64
	under       uint32
	since       uint32
	ordinal     uint64
}

// drops are records of drops of equal packets, and the reason of the first.
type drops struct {
	count  uint32
	reason string
}

// newJourneys makes the table. With ahead, packets that arrive before they leave are
// matched, and those that never left are counted.
func newJourneys(c *Capture, ahead bool, mourn func(journey)) *journeys {
	s := &journeys{
		capture:  c,
		linger:   lingers(c),
		numbered: c.numbered(),
		base:     1,
		numbers:  map[uint64]int64{},
		classes:  map[uint64]class{},
		drops:    map[uint64]drops{},
		guessed:  map[uint64]journey{},
		reasons:  map[string]uint64{},
		mourn:    mourn,
	}
	if ahead {
		s.ahead, s.early = map[uint64]strangers{}, map[uint64]bool{}
	}
	return s
}

// left is how many packets are counted.
func (s *journeys) left() uint64 { return s.arrived + s.lost + s.underWay + s.untold }

// start takes a packet that leaves. One that had arrived already is matched at once.
func (s *journeys) start(p *Packet, j journey) (arrivedBefore bool) {
	j.id, j.identity, j.left = p.ID, p.Identity(), p.Time
	// An arrival earlier by more than the clocks of two taps differ is not of this packet: it was a
	// copy, or of a packet that no tap saw leave.
	before, arrived := s.ahead[j.identity]
	if arrived && j.left-before.at > int64(stampSlack) {
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

// take removes the packet that arrives, or else the equal one that left first.
func (s *journeys) take(p *Packet) (j journey, known bool) {
	identity := p.Identity()
	of, known := s.classes[identity]
	if !known {
		return journey{}, false
	}
	latest := s.at(of.last).ordinal
	if number, named := s.numbers[p.ID]; named && s.at(number).identity == identity {
		j = s.remove(number)
		if j.earliest, j.latest = of.ordinal, latest; s.numbered {
			j.earliest, j.latest = j.ordinal, j.ordinal
		}
		return j, true
	}
	j = s.remove(of.first)
	j.earliest, j.latest = of.ordinal, latest
	if !j.apart && len(s.guessed) < journeysMost {
		s.guessed[j.id] = j
	}
	return j, true
}

// own removes the packet of an id. What arrived instead of it had not left, or had
// arrived before.
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

// arrive ends the journey of a packet that arrives, if it is one that was seen to leave.
func (s *journeys) arrive(p *Packet) (j journey, known bool) {
	j, known = s.take(p)
	identity := p.Identity()
	switch {
	case known && !j.apart:
		s.arrived++
	case !known && s.ahead != nil && (p.Time-s.capture.First >= s.linger || s.early[identity]):
		if len(s.ahead) >= journeysMost {
			s.short = true
			s.settle()
		}
		s.ahead[identity] = strangers{s.ahead[identity].count + 1, p.Time}
	}
	return j, known && !j.apart
}

// settle counts what arrived and has not left.
func (s *journeys) settle() {
	for _, of := range s.ahead {
		s.strays += uint64(of.count)
	}
	clear(s.ahead)
}

// note takes a record that a packet was dropped. It explains a packet that equals this
// one, where no packet under way has its id.
func (s *journeys) note(p *Packet) {
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

// forget ends a packet's journey, if it is under way, and counts it nowhere.
func (s *journeys) forget(p *Packet) (known bool) {
	j, known := s.own(p.ID)
	if !known {
		j, known = s.take(p)
	}
	return known && !j.apart
}

// missing counts a packet that has not arrived, one of so many equal ones since none was
// under way.
func (s *journeys) missing(j journey, now int64, since uint32) {
	if d := s.drops[j.identity]; d.count > 0 {
		d.count--
		s.drops[j.identity] = d
		s.lose(j, d.reason)
		return
	}
	switch late := now-j.left < s.linger; {
	case !late:
		s.lose(j, "no record of a drop")
	case j.apart:
	case since > 1:
		s.untold++
	default:
		s.underWay++
	}
}

// lose counts a packet that is lost.
func (s *journeys) lose(j journey, reason string) {
	if j.apart {
		return
	}
	j.reason = reason
	s.lost++
	if _, known := s.reasons[reason]; known || len(s.reasons) < maxDetails*10 {
		s.reasons[reason]++
	} else {
		s.reasons["other reasons"]++
	}
	if s.mourn != nil {
		s.mourn(j)
	}
}

// finish gives up whatever is under way.
func (s *journeys) finish(now int64) {
	for i := range s.under {
		if j := s.under[i]; !j.over {
			s.missing(j, now, s.classes[j.identity].since)
		}
	}
	clear(s.classes)
	clear(s.numbers)
	s.under = nil
	if s.ahead != nil {
		s.settle()
	}
}

// losses are lines that say how many packets were lost for what reason.
func (s *journeys) losses(what string) (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		lines = append(lines, fmt.Sprintf("%d %s were lost: %s", s.reasons[reason], what, reason))
	}
	return lines
}

// doubts are reasons why the counts may be wrong.
func (s *journeys) doubts() (lines []string) {
	if s.short {
		lines = append(lines, "more packets at once than are remembered")
	}
	if s.untold > 0 {
		lines = append(lines, fmt.Sprintf(
			"%d packets that equal others have not arrived: lost, or under way at the end", s.untold))
	}
	if s.acausal > 0 {
		lines = append(lines, fmt.Sprintf("%d packets arrived before they left: the clocks of ports differ",
			s.acausal))
	}
	return lines
}

// clockTime shows a time of the capture.
func clockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }
