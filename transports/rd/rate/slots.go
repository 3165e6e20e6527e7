package rate

import (
	"time"

	"railbed/internal/clock"
)

// Slots sends what an arbiter granted, not before it said so. What is posted, and
// what has to be sent again, is asked for. Packets without payload need no slot: no
// queue grows of them. They go while nothing that was granted is exceeded, and a packet
// with payload that stands before one goes in its place, at the cost of the next grant.
type Slots struct {
	Line
	// Want is called when so many bytes more are wanted than were asked for.
	Want func(bytes int)
	// Miss is how long after its moment a grant is good. What its owner did not send by
	// then, because he was late, he asks for again, since others have their slots now; so
	// does Fastpass. After each grant in a row that was missed it is twice as long, so
	// that an owner who is always late sends, too. 0 is for good.
	Miss time.Duration

	grants [64]grant // that begin later, the soonest first, as a ring
	first  int
	count  int
	budget int        // bytes that may go now
	since  clock.Time // of the latest grant in it
	empty  int        // packets without payload that wait
	misses int        // grants in a row
}

type grant struct {
	from  clock.Time
	bytes int
}

// Grant takes what the arbiter granted: so many bytes from a moment on. Grants are
// in the order of their moments. One too many joins the last that waits.
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

// maxMisses bounds how often the time of a grant doubles.
const maxMisses = 10

// missed says that a grant is over.
func (s *Slots) missed(now, from clock.Time) bool {
	return s.Miss > 0 && now > from.Add(s.Miss<<min(s.misses, maxMisses))
}
