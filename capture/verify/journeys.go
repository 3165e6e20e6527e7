package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// journeys remember packets between the port that they left and the NIC that they
// arrive at, in two generations; the older one is given up when the newer one is
// old enough or full. They count how each journey ended.
type journeys struct {
	young, old map[uint64]journey
	turned     int64
	short      bool // generations were shorter than packets may be under way
	linger     int64
	generation int64

	// underWay are packets that left so late that they may still arrive, and of
	// which nobody said that they will not.
	arrived, underWay, lost uint64
	reasons                 map[string]uint64 // why packets were lost, as recorded
	// mourn is told of each packet that was lost. It may be nil.
	mourn func(id uint64, j journey)
}

// journey is a packet on its way.
type journey struct {
	left    int64
	ordinal uint64 // in its flow, where it left
	reason  string // why it was dropped on the way, as recorded
}

func newJourneys(c *Capture, mourn func(uint64, journey)) journeys {
	linger := lingers(c)
	return journeys{young: map[uint64]journey{}, old: map[uint64]journey{}, linger: linger, generation: generationOf(linger), reasons: map[string]uint64{}, mourn: mourn}
}

// start is a packet that leaves.
func (s *journeys) start(id uint64, j journey) {
	if j.left-s.turned > s.generation || len(s.young) >= generationMost {
		s.turn(j.left)
	}
	s.young[id] = j
}

func (s *journeys) turn(now int64) {
	for id, j := range s.old {
		if now-j.left < s.linger {
			s.short = true
		}
		s.missing(id, j, now)
	}
	clear(s.old)
	s.old, s.young = s.young, s.old
	s.turned = now
}

// missing counts a packet that has not arrived.
func (s *journeys) missing(id uint64, j journey, now int64) {
	switch {
	case now-j.left < s.linger && j.reason == "":
		s.underWay++
		return
	case j.reason == "":
		j.reason = "without a word"
	}
	s.lost++
	if len(s.reasons) < maxDetails*10 {
		s.reasons[j.reason]++
	}
	if s.mourn != nil {
		s.mourn(id, j)
	}
}

// arrive ends the journey of a packet that arrived, if it is one that was seen to
// leave.
func (s *journeys) arrive(id uint64) (journey, bool) {
	j, known := s.forget(id)
	if known {
		s.arrived++
	}
	return j, known
}

// note says why a packet will not arrive.
func (s *journeys) note(id uint64, reason string) {
	if j, known := s.young[id]; known {
		j.reason = reason
		s.young[id] = j
	} else if j, known := s.old[id]; known {
		j.reason = reason
		s.old[id] = j
	}
}

// forget ends a packet's journey, if it is under way, and counts it nowhere.
func (s *journeys) forget(id uint64) (j journey, known bool) {
	if j, known = s.young[id]; !known {
		j, known = s.old[id]
	}
	delete(s.young, id)
	delete(s.old, id)
	return j, known
}

// finish gives up whatever is left.
func (s *journeys) finish(now int64) {
	for _, generation := range []map[uint64]journey{s.old, s.young} {
		for id, j := range generation {
			s.missing(id, j, now)
		}
	}
}

// losses are lines that say how many packets were lost for what reason.
func (s *journeys) losses(what string) (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		lines = append(lines, fmt.Sprintf("%d %s were lost: %s", s.reasons[reason], what, reason))
	}
	return lines
}

// clockTime shows a time of the capture.
func clockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }
