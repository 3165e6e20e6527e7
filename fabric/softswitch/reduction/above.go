package reduction

import (
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// answer processes a message from the parent, as in PROTOCOL.md, 3.3. It belongs to a set whose
// partial sum was sent up in this epoch, or it is too late.
func (t *Table) answer(now clock.Time, m *Message, index int) Outcome {
	a, j := wire.Aggregation(m.Data), &t.jobs[index]
	if !j.Parent.sent(m) {
		return j.refuse(Stranger)
	}
	at := 2*int(a.Slot()) + a.Set()
	if a.Key() != j.up || int(a.Slot()) >= j.Slots {
		return j.refuse(Late)
	}
	s := &j.sets[at]
	if s.life != j.life || s.state != forParent || a.Round() != s.round || j.over != 0 {
		return j.refuse(Late)
	}
	if a.Kind() == wire.AggregationReject {
		if int(a.Code()) >= wire.AggregationCodes {
			return j.refuse(Malformed)
		}
		// Children that request a result get this reject.
		j.over, j.present, j.above = a.Code(), a.Bitmap(), a.Epoch()
		return Outcome{Action: Keep, Job: index}
	}
	if a.Epoch() != j.epoch || a.Bitmap() != j.all || int(a.FanIn()) != j.FanIn || a.Type() != s.kind ||
		a.Op() != s.op || a.Offset() != s.offset ||
		a.Scale() != s.scale || a.Elements() != s.elements {
		return j.refuse(Malformed)
	}
	j.set(at, a)
	s.bitmap, s.greater, s.saturated = a.Bitmap(), a.NextScale(), a.Flags()&wire.AggregationSaturated != 0
	j.move(now, int32(at), complete)
	j.counters.Results++
	return Outcome{Action: SendAll, Job: index, set: at}
}

// ask reports whether to send a partial sum up again. All children that wait for a result repeat
// their request at about the same time, and the first request is enough. So only a child that has
// already sent a request since then triggers another one.
func (j *job) ask(s *set, c int) (again bool) {
	bit := uint64(1) << c
	if s.asked != 0 && s.asked&bit == 0 {
		s.asked |= bit
		return false
	}
	s.asked = bit
	return true
}

// Partial writes the partial sum of an outcome into ResultLen bytes.
func (t *Table) Partial(o *Outcome, into []byte) {
	j := &t.jobs[o.Job]
	f := j.fields(o)
	f.Kind, f.Worker, f.Key, f.Bitmap = wire.AggregationPartial, lowest(j.below), j.up, j.below
	j.write(o, &f, into)
}
