package rate

import "railbed/fabric/clock"

// Slots sends what an arbiter granted, not before it said so. What is posted, and
// what has to be sent again, is asked for; a packet without payload counts as a byte.
// A grant that its owner was late for stays good: it is used when he comes to it.
type Slots struct {
	Line
	// Want is called when so many bytes more are wanted than were asked for.
	Want func(bytes int)

	grants [64]grant // that begin later, the soonest first, as a ring
	first  int
	count  int
	budget int // bytes that may go now
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
func (s *Slots) Wanted(_ clock.Time, bytes int) { s.Want(max(bytes, 1)) }

// Lost implements Controller.
func (s *Slots) Lost(_ clock.Time, l Loss) { s.Want(max(l.Bytes, 1)) }

// Sent implements Controller.
func (s *Slots) Sent(_ clock.Time, bytes int) { s.budget -= max(bytes, 1) }

// Allowed implements Controller.
func (s *Slots) Allowed(now clock.Time) Allowance {
	for s.count > 0 && s.grants[s.first].from <= now {
		s.budget += s.grants[s.first].bytes
		s.first = (s.first + 1) % len(s.grants)
		s.count--
	}
	switch {
	case s.budget > 0:
		return Allowance{}
	case s.count > 0:
		return Allowance{From: s.grants[s.first].from}
	}
	return Allowance{From: clock.Never}
}
