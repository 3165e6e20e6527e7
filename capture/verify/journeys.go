package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// journeys match packets that leave one port with those that arrive at another. Equal
// packets are a multiset: whichever of them arrives, one less is under way, and a
// recorded drop explains one that does not. Every packet that left is counted once,
// as arrived, lost, under way, untold, or taken out; so the counts add up.
type journeys struct {
	capture *Capture
	linger  int64
	// under are packets as they left, from front on the first that is under way and
	// those behind it. base is the number of the first of all.
	under   []journey
	front   int
	base    int64
	classes map[uint64]class     // equal packets under way, by identity
	drops   map[uint64]drops     // records of drops that explain no packet yet
	ahead   map[uint64]strangers // packets that arrived before they left, if matched; else nil
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
	mourn func(id uint64, j journey)
}

// journeysMost bounds the packets that are remembered, 56 bytes each.
const journeysMost = 1 << 19

// journey is a packet on its way.
type journey struct {
	id      uint64
	left    int64
	ordinal uint64 // in its flow, where it left
	reason  string // why it was lost
	next    int64  // number of the next equal packet under way, 0 is none
	// apart says that the packet is followed and not counted.
	apart, over bool
}

// strangers are equal packets that arrived and were not seen to leave: how many, and when the latest arrived.
type strangers struct {
	count int
	at    int64
}

// class is equal packets under way: the numbers of the first and the last, and how many
// there were since none was under way.
type class struct {
	first, last int64
	since       uint32
}

// drops are records of drops of equal packets, and the reason of the first.
type drops struct {
	count  uint32
	reason string
}

// newJourneys makes the table. With ahead, packets that arrive before they leave are
// matched, and those that never left are counted.
func newJourneys(c *Capture, ahead bool, mourn func(uint64, journey)) *journeys {
	s := &journeys{capture: c, linger: lingers(c), base: 1, classes: map[uint64]class{}, drops: map[uint64]drops{}, reasons: map[string]uint64{}, mourn: mourn}
	if ahead {
		s.ahead, s.early = map[uint64]strangers{}, map[uint64]bool{}
	}
	return s
}

// left is how many packets are counted.
func (s *journeys) left() uint64 { return s.arrived + s.lost + s.underWay + s.untold }

// start takes a packet that leaves. One that had arrived already is matched at once.
func (s *journeys) start(j journey) (arrivedBefore bool) {
	// An arrival earlier by more than the clocks of two taps differ is not of this packet: it was a copy, or of a
	// packet that no tap saw leave.
	before, arrived := s.ahead[j.id]
	if arrived && j.left-before.at > int64(stampSlack) {
		s.strays += uint64(before.count)
		delete(s.ahead, j.id)
		arrived = false
	}
	if arrived {
		if before.count--; before.count == 0 {
			delete(s.ahead, j.id)
		} else {
			s.ahead[j.id] = before
		}
		s.acausal++
		if !j.apart {
			s.arrived++
		}
		return true
	}
	if s.early != nil && j.left-s.capture.First < s.linger && len(s.early) < journeysMost {
		s.early[j.id] = true
	}
	if len(s.under)-s.front >= journeysMost {
		s.evict(j.left)
	}
	s.advance()
	number := s.base + int64(len(s.under))
	s.under = append(s.under, j)
	of, others := s.classes[j.id]
	if others {
		s.at(of.last).next = number
		of.last, of.since = number, of.since+1
	} else {
		of = class{number, number, 1}
	}
	s.classes[j.id] = of
	return false
}

func (s *journeys) at(number int64) *journey { return &s.under[number-s.base] }

// evict gives up the oldest packet under way.
func (s *journeys) evict(now int64) {
	oldest := &s.under[s.front]
	s.short = s.short || now-oldest.left < s.linger
	j, _ := s.take(oldest.id)
	s.missing(j, now, 1)
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

// take removes the packet of an identity that left first.
func (s *journeys) take(id uint64) (j journey, known bool) {
	of, known := s.classes[id]
	if !known {
		return journey{}, false
	}
	first := s.at(of.first)
	first.over = true
	if first.next == 0 {
		delete(s.classes, id)
	} else {
		of.first = first.next
		s.classes[id] = of
	}
	return *first, true
}

// arrive ends the journey of a packet that arrives, if it is one that was seen to leave.
func (s *journeys) arrive(id uint64, now int64) (j journey, known bool) {
	j, known = s.take(id)
	switch {
	case known && !j.apart:
		s.arrived++
	case !known && s.ahead != nil && (now-s.capture.First >= s.linger || s.early[id]):
		if len(s.ahead) >= journeysMost {
			s.short = true
			s.settle()
		}
		s.ahead[id] = strangers{s.ahead[id].count + 1, now}
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

// note takes a record that a packet was dropped.
func (s *journeys) note(id uint64, reason string) {
	d := s.drops[id]
	if d.count++; d.reason == "" {
		d.reason = reason
	}
	if len(s.drops) < journeysMost {
		s.drops[id] = d
	}
}

// forget ends a packet's journey, if it is under way, and counts it nowhere.
func (s *journeys) forget(id uint64) (known bool) {
	j, known := s.take(id)
	return known && !j.apart
}

// missing counts a packet that has not arrived, one of so many equal ones since none was
// under way.
func (s *journeys) missing(j journey, now int64, since uint32) {
	if d := s.drops[j.id]; d.count > 0 {
		d.count--
		j.reason = d.reason
		s.drops[j.id] = d
	}
	switch {
	case j.apart:
		return
	case j.reason == "" && now-j.left < s.linger && since > 1:
		s.untold++
		return
	case j.reason == "" && now-j.left < s.linger:
		s.underWay++
		return
	case j.reason == "":
		j.reason = "no record of a drop"
	}
	s.lost++
	if _, known := s.reasons[j.reason]; known || len(s.reasons) < maxDetails*10 {
		s.reasons[j.reason]++
	} else {
		s.reasons["other reasons"]++
	}
	if s.mourn != nil {
		s.mourn(j.id, j)
	}
}

// finish gives up whatever is under way.
func (s *journeys) finish(now int64) {
	for i := range s.under {
		if j := s.under[i]; !j.over {
			since := s.classes[j.id].since
			s.missing(j, now, since)
		}
	}
	clear(s.classes)
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
		lines = append(lines, fmt.Sprintf("%d packets that equal others have not arrived: lost, or under way at the end", s.untold))
	}
	if s.acausal > 0 {
		lines = append(lines, fmt.Sprintf("%d packets arrived before they left: the clocks of ports differ", s.acausal))
	}
	return lines
}

// clockTime shows a time of the capture.
func clockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }
