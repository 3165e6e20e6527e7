package verify

import "time"

// journeys remember packets between the NIC that they left and the one that they
// arrive at, in two generations; the older one is given up when the newer one is
// old enough or full.
type journeys struct {
	young, old map[uint64]journey
	turned     int64
	short      bool // generations were shorter than packets may be under way
	linger     int64
	// end is told of each packet that did not arrive.
	end func(id uint64, j journey, now int64)
}

// journey is a packet on its way.
type journey struct {
	left    int64
	ordinal uint64 // in its flow, where it left
	reason  string // why it was dropped on the way, as recorded
}

func newJourneys(c *Capture, end func(uint64, journey, int64)) journeys {
	return journeys{young: map[uint64]journey{}, old: map[uint64]journey{}, linger: lingers(c), end: end}
}

// start is a packet that leaves.
func (s *journeys) start(id uint64, j journey) {
	if j.left-s.turned > generation || len(s.young) >= generationMost {
		s.turn(j.left)
	}
	s.young[id] = j
}

func (s *journeys) turn(now int64) {
	for id, j := range s.old {
		if now-j.left < s.linger {
			s.short = true
		}
		s.end(id, j, now)
	}
	clear(s.old)
	s.old, s.young = s.young, s.old
	s.turned = now
}

// find is a packet under way.
func (s *journeys) find(id uint64) (journey, bool) {
	if j, known := s.young[id]; known {
		return j, true
	}
	j, known := s.old[id]
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

// forget ends a packet's journey.
func (s *journeys) forget(id uint64) {
	delete(s.young, id)
	delete(s.old, id)
}

// finish gives up whatever is left.
func (s *journeys) finish(now int64) {
	for _, generation := range []map[uint64]journey{s.old, s.young} {
		for id, j := range generation {
			s.end(id, j, now)
		}
	}
}

// clockTime shows a time of the capture.
func clockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }
