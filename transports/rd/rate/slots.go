package rate

import (
	"time"

	"railbed/internal/clock"
)

// Slots sends the bytes that an arbiter granted, not before their slots. It requests slots for
// posted bytes and for bytes to retransmit. Packets without payload need no slot, because no queue
// grows from them. They are sent while no grant is exceeded. A packet with payload that is ahead of
// such a packet is sent in its place, at the cost of the next grant.
type Slots struct {
	Line
	// Want is called with the number of bytes that are needed beyond the requested bytes.
	Want func(bytes int)
	// Miss is the time for which a grant is valid after its slot began. Bytes that were not sent by
	// then, because the sender was late, are requested again: other senders have the slots now.
	// Fastpass does the same. Miss doubles after each consecutive missed grant, so that a sender
	// that is always late sends, too. With 0, grants do not expire.
	Miss time.Duration

	grants [64]grant // that begin later, the soonest first, as a ring
	first  int
	count  int
	budget int        // bytes that may be sent now
	since  clock.Time // time of the latest grant in it
	empty  int        // waiting packets without payload
	misses int        // consecutive missed grants
}

type grant struct {
	from  clock.Time
	bytes int
}

// Grant records a grant of the arbiter: a number of bytes that may be sent from a time on. Grants
// must be in the order of their times. When the ring is full, a grant's bytes are added to the last
// waiting grant.
func (s *Slots) Grant(from clock.Time, bytes int) {
	if s.count == len(s.grants) {
		s.grants[(s.first+s.count-1)%len(s.grants)].bytes += bytes
		return
	}
	s.grants[(s.first+s.count)%len(s.grants)] = grant{from, bytes}
	s.count++
}

// Wanted implements Controller.
func (s *Slots) Wanted(_ clock.Time, bytes int) {
	if bytes == 0 {
		s.empty++
		return
	}
	s.Want(bytes)
}

// Lost implements Controller.
func (s *Slots) Lost(now clock.Time, l Loss) { s.Wanted(now, l.Bytes) }

// Sent implements Controller.
func (s *Slots) Sent(_ clock.Time, bytes int) {
	if s.budget -= bytes; bytes == 0 {
		s.empty = max(s.empty-1, 0)
	}
}

// Allowed implements Controller.
func (s *Slots) Allowed(now clock.Time) Allowance {
	if s.budget > 0 && s.missed(now, s.since) {
		s.Want(s.budget)
		s.budget = 0
	}
	for s.count > 0 && s.grants[s.first].from <= now {
		if g := s.grants[s.first]; s.missed(now, g.from) {
			s.Want(g.bytes)
			s.misses++
		} else {
			s.budget, s.since = s.budget+g.bytes, g.from
			if now <= g.from.Add(s.Miss) {
				s.misses = 0
			}
		}
		s.first = (s.first + 1) % len(s.grants)
		s.count--
	}
	switch {
	case s.budget > 0 || s.budget == 0 && s.empty > 0:
		return Allowance{}
	case s.count > 0:
		return Allowance{From: s.grants[s.first].from}
	}
	return Allowance{From: clock.Never}
}

// maxMisses bounds how often Miss doubles.
const maxMisses = 10

// missed reports whether a grant has expired.
func (s *Slots) missed(now, from clock.Time) bool {
	return s.Miss > 0 && now > from.Add(s.Miss<<min(s.misses, maxMisses))
}
