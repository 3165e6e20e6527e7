package queuepair

import (
	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// recovery is what a requester with Config.Selective knows of what came out of
// order, requests there and answers here.
type recovery struct {
	served   infiniband.PSN // what is before it the peer has carried out
	selected psnSet         // requests that the peer keeps
	kept     psnSet         // answers that are in their place
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

// cursor goes once over what may be missing: from next to high, until what was sent
// when it began is over.
type cursor struct {
	active            bool
	next, high, until infiniband.PSN
}

// begin looks for what is missing between two PSNs.
func (c *cursor) begin(from, high, top infiniband.PSN) {
	if !c.active {
		*c = cursor{active: true, next: from, high: high, until: top}
		return
	}
	if high.From(c.high) > 0 {
		c.high = high
	}
}

// over says that what is before a PSN is not missing.
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

// missing is the place of what is to be sent again, nil for nothing.
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
		case !w.Op.answers() || w.first.From(q.served) >= 0: // not asked there, so no answer of it is missing
			c.next = w.end()
		case q.kept.has(c.next):
			c.next = c.next.Add(1)
		default:
			return &c.next
		}
	}
	return nil
}

// readUntil is where a READ that begins with a PSN is to end: before what came
// already, if it is for what is missing.
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

// carriedOut takes in that the peer has carried out what is before a PSN.
func (q *QP) carriedOut(to infiniband.PSN) {
	if !q.config.Selective || to.From(q.served) <= 0 {
		return
	}
	for ; q.served != to; q.served = q.served.Add(1) {
		delete(q.selected, q.served)
	}
	q.requests.over(to)
}

// selectedEarly takes in that the peer waits for a PSN and keeps a later one.
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

// early takes in that an answer came before others, and says whether it is new.
func (q *QP) early(w *work, psn infiniband.PSN) bool {
	q.carriedOut(w.end())
	q.answers.begin(q.una, psn, q.top)
	return q.kept.add(psn)
}

// knows says that una, which is in the oldest request, is over: the answer with data
// came early, or the peer has carried out a request that is answered without.
func (q *QP) knows(w *work) bool {
	if !w.Op.answers() {
		return q.config.Selective && q.served.From(q.una) > 0
	}
	ok := q.kept.has(q.una)
	delete(q.kept, q.una)
	return ok
}

// forget drops what is known of PSNs that are over.
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

// restart looks for everything again after a silence.
func (q *QP) restart() {
	clear(q.selected)
	q.served = q.una
	q.requests, q.answers = cursor{}, cursor{}
	q.requests.begin(q.una, q.top, q.top)
	q.answers.begin(q.una, q.top, q.top)
}
