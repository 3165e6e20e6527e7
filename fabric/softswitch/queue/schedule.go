package queue

import (
	"math/bits"

	"railbed/fabric/softswitch/packet"
	"railbed/plan"
)

// scheduler selects the queue that sends next.
type scheduler struct {
	order  [Priorities]uint8 // strict queues, the highest first
	strict Mask

	quantum [Priorities]int64
	deficit [Priorities]int64
	turn    uint8 // the current queue among the others
	granted bool  // that queue has received its quantum in this turn
}

// newScheduler sets the queues' quanta by their weights. The smallest is a frame, so that a queue
// sends at each of its turns and a turn takes constant time (Shreedhar and Varghese, SIGCOMM 1995,
// section 3).
func newScheduler(c *plan.Scheduler) (s scheduler) {
	for i, q := range c.Strict {
		s.order[i], s.strict = uint8(q), s.strict|MaskOf(q)
	}
	for q, weight := range c.Weights {
		s.quantum[q] = max(int64(weight), 1) * max(int64(c.Quantum), 1)
	}
	return s
}

// choose selects among queues that may send; there must be one.
func (s *scheduler) choose(ready Mask, head *[Priorities]*packet.Packet) uint8 {
	if strict := ready & s.strict; strict != 0 {
		if strict&(strict-1) == 0 { // one alone
			return strict.first()
		}
		for _, q := range s.order {
			if strict.Has(q) {
				return q
			}
		}
	}
	for {
		q := s.turn
		if ready.Has(q) {
			length := int64(len(head[q].Data))
			if !s.granted {
				// A queue that was paused in its turn keeps its remaining deficit, up to one
				// packet, like other queues.
				s.deficit[q] = min(s.deficit[q], length) + s.quantum[q]
				s.granted = true
			}
			if length <= s.deficit[q] {
				s.deficit[q] -= length
				return q
			}
		}
		s.pass(ready)
	}
}

// pass moves the turn to the next queue that may send.
func (s *scheduler) pass(ready Mask) {
	after := bits.RotateLeft8(uint8(ready), -int(s.turn+1))
	s.turn = (s.turn + 1 + uint8(bits.TrailingZeros8(after))) & (Priorities - 1)
	s.granted = false
}

// emptied ends the turn of a queue that has become empty: it loses its unused deficit.
func (s *scheduler) emptied(q uint8) {
	s.deficit[q] = 0
	if q == s.turn && !s.strict.Has(q) {
		s.turn, s.granted = (q+1)&(Priorities-1), false
	}
}
