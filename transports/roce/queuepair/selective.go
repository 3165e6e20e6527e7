package queuepair

import (
	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// recovery is a selective requester's record of packets out of order: requests at the peer and
// answers here.
type recovery struct {
	served   infiniband.PSN // the peer has executed everything before it
	selected psnSet         // requests that the peer keeps
	kept     psnSet         // answers that are placed already
	requests cursor
	answers  cursor
}

type psnSet map[infiniband.PSN]struct{}

func (s *psnSet) add(psn infiniband.PSN) (fresh bool) {
	if *s == nil {
		*s = psnSet{}
	}
	before := len(*s)
	(*s)[psn] = struct{}{}
	return len(*s) > before
}

func (s psnSet) has(psn infiniband.PSN) bool {
	_, ok := s[psn]
	return ok
}

// cursor runs once over PSNs that may be missing, from next to high. It stays active until all that
// was sent before it began is over.
type cursor struct {
	active            bool
	next, high, until infiniband.PSN
}

// begin starts a search for missing PSNs between two PSNs.
func (c *cursor) begin(from, high, top infiniband.PSN) {
	if !c.active {
		*c = cursor{active: true, next: from, high: high, until: top}
		return
	}
	if high.From(c.high) > 0 {
		c.high = high
	}
}

// over records that no PSN before one is missing.
func (c *cursor) over(before infiniband.PSN) {
	if !c.active {
		return
	}
	if before.From(c.until) >= 0 {
		c.active = false
		return
	}
	if c.next.From(before) < 0 {
		c.next = before
	}
	if c.high.From(before) < 0 {
		c.high = before
	}
}

// missing returns the place of the next PSN to retransmit, or nil.
func (q *QP) missing() *infiniband.PSN {
	for c := &q.requests; c.active && c.next.From(c.high) < 0; c.next = c.next.Add(1) {
		if q.selected.has(c.next) {
			continue
		}
		if w := q.at(c.next); w.Op.answers() && c.next != w.first {
			continue
		}
		return &c.next
	}
	for c := &q.answers; c.active && c.next.From(c.high) < 0; {
		switch w := q.at(c.next); {
		case !w.Op.answers() || w.first.From(q.served) >= 0: // not requested: none of its answer is missing
			c.next = w.end()
		case q.kept.has(c.next):
			c.next = c.next.Add(1)
		default:
			return &c.next
		}
	}
	return nil
}

// readUntil returns the end of a READ that begins with a PSN. A READ for a missing part ends before
// the parts that have arrived.
func (q *QP) readUntil(psn, end infiniband.PSN) infiniband.PSN {
	if c := &q.answers; c.active && psn == c.next && psn.From(q.served) < 0 {
		next := psn.Add(1)
		for next != end && next.From(c.high) < 0 && !q.kept.has(next) {
			next = next.Add(1)
		}
		return next
	}
	return end
}

// carriedOut records that the peer has executed everything before a PSN.
func (q *QP) carriedOut(to infiniband.PSN) {
	if !q.config.Selective || to.From(q.served) <= 0 {
		return
	}
	for ; q.served != to; q.served = q.served.Add(1) {
		delete(q.selected, q.served)
	}
	q.requests.over(to)
}

// selectedEarly processes a report that the peer waits for one PSN and keeps a later one.
func (q *QP) selectedEarly(now clock.Time, waits, keeps infiniband.PSN) {
	if !q.config.Selective || keeps.From(waits) <= 0 || keeps.From(q.top) >= 0 {
		q.counters.Ignored++
		return
	}
	q.advance(now, waits)
	if keeps.From(q.served) > 0 {
		q.selected.add(keeps)
		q.requests.begin(q.served, keeps, q.top)
	}
}

// early records an answer that arrived before earlier ones, and reports whether it is new.
func (q *QP) early(w *work, psn infiniband.PSN) bool {
	q.carriedOut(w.end())
	q.answers.begin(q.una, psn, q.top)
	return q.kept.add(psn)
}

// knows reports whether una, which is in the oldest request, is over. It is if the answer with data
// arrived early, or if the peer has executed a request that is answered without data.
func (q *QP) knows(w *work) bool {
	if !w.Op.answers() {
		return q.config.Selective && q.served.From(q.una) > 0
	}
	ok := q.kept.has(q.una)
	delete(q.kept, q.una)
	return ok
}

// forget drops records of PSNs that are over.
func (q *QP) forget(before infiniband.PSN) {
	if !q.config.Selective {
		return
	}
	q.carriedOut(q.una)
	if len(q.kept) > 0 {
		for ; before != q.una; before = before.Add(1) {
			delete(q.kept, before)
		}
	}
	q.answers.over(q.una)
}

// restart begins the search for missing PSNs anew after a silence.
func (q *QP) restart() {
	clear(q.selected)
	q.served = q.una
	q.requests, q.answers = cursor{}, cursor{}
	q.requests.begin(q.una, q.top, q.top)
	q.answers.begin(q.una, q.top, q.top)
}
