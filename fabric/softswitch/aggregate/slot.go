package aggregate

import (
	"encoding/binary"
	"math"

	"railbed/fabric/clock"
	"railbed/transports/wire"
)

// update is what PROTOCOL.md, 3.2, does with an update that belongs to the job.
func (t *Table) update(now clock.Time, m *Message, index, w int) Outcome {
	a, j := wire.Aggregation(m.Data), &t.jobs[index]
	at := 2*int(a.Slot()) + a.Set()
	s := &j.sets[at]
	fresh := s.life != j.life
	complete := !fresh && s.bitmap == j.full
	var ahead int32
	if !fresh {
		ahead = int32(a.Round() - s.round)
	}
	bit := uint64(1) << w
	switch {
	case ahead < 0:
		return t.Refuse(Late)
	case fresh || ahead > 0:
		if fresh && a.Round() != uint32(a.Set()) || !fresh && (ahead != 2 || !complete) {
			return t.reject(now, m, index, w, wire.AggregationMismatch, s.had(fresh))
		}
		j.start(now, at, a)
	case s.bitmap&bit == 0:
		if a.Type() != s.kind || a.Offset() != s.offset || a.Scale() != s.scale || a.Elements() != s.elements {
			return t.reject(now, m, index, w, wire.AggregationMismatch, s.bitmap)
		}
		j.add(at, a)
	default:
		j.workers[w].back = m.Return
		t.counters.Repeats++
		if !complete {
			return Outcome{Action: Keep, Job: index}
		}
		t.counters.Again++
		return Outcome{Action: SendOne, Job: index, set: at, Worker: w}
	}
	s.bitmap |= bit
	j.workers[w].back = m.Return
	t.counters.Updates++
	if s.bitmap != j.full {
		return Outcome{Action: Keep, Job: index}
	}
	j.unlist(int32(at))
	t.counters.Results++
	return Outcome{Action: SendAll, Job: index, set: at}
}

// had is who is in the set.
func (s *set) had(fresh bool) uint64 {
	if fresh {
		return 0
	}
	return s.bitmap
}

// valuesOf are the elements of a set.
func (j *job) valuesOf(at, elements int) []uint32 {
	from := at * j.Elements
	return j.values[from : from+elements]
}

// start gives a set to an update's round.
func (j *job) start(now clock.Time, at int, a wire.Aggregation) {
	s := &j.sets[at]
	*s = set{
		started: now, round: a.Round(), offset: a.Offset(), life: j.life, elements: a.Elements(), kind: a.Type(),
		scale: a.Scale(), greater: a.NextScale(), previous: j.newest, next: -1,
	}
	if j.newest >= 0 {
		j.sets[j.newest].next = int32(at)
	} else {
		j.oldest = int32(at)
	}
	j.newest = int32(at)
	data := a.Data()
	values := j.valuesOf(at, int(s.elements))
	for i := range values {
		values[i] = binary.BigEndian.Uint32(data[4*i:])
	}
}

// unlist takes a set that is complete out of the list of those that wait.
func (j *job) unlist(at int32) {
	s := &j.sets[at]
	if s.previous >= 0 {
		j.sets[s.previous].next = s.next
	} else {
		j.oldest = s.next
	}
	if s.next >= 0 {
		j.sets[s.next].previous = s.previous
	} else {
		j.newest = s.previous
	}
}

// add adds an update's elements to those of its set.
func (j *job) add(at int, a wire.Aggregation) {
	s := &j.sets[at]
	s.greater = max(s.greater, a.NextScale())
	data := a.Data()
	values := j.valuesOf(at, int(s.elements))
	if s.kind == wire.AggregationFloat32 {
		for i, sum := range values {
			more := math.Float32frombits(binary.BigEndian.Uint32(data[4*i:]))
			values[i] = math.Float32bits(math.Float32frombits(sum) + more)
		}
		return
	}
	for i, sum := range values {
		exact := int64(int32(sum)) + int64(int32(binary.BigEndian.Uint32(data[4*i:])))
		held := min(max(exact, math.MinInt32), math.MaxInt32)
		s.saturated = s.saturated || held != exact
		values[i] = uint32(int32(held))
	}
}

// Workers is how many workers a job has.
func (t *Table) Workers(job int) int { return len(t.jobs[job].workers) }

// Return is how a worker's results go back to it.
func (t *Table) Return(job, worker int) *Return { return &t.jobs[job].workers[worker].back }

// ResultLen is the length of the result of an outcome, in bytes.
func (t *Table) ResultLen(o *Outcome) int {
	return wire.AggregationMessageLen(int(t.jobs[o.Job].sets[o.set].elements))
}

// Result writes the result for a worker into ResultLen bytes.
func (t *Table) Result(o *Outcome, worker int, into []byte) {
	j := &t.jobs[o.Job]
	s := &j.sets[o.set]
	f := wire.AggregationFields{
		Kind: wire.AggregationResult, Type: s.kind, Job: j.Number, Epoch: j.epoch, Slot: uint16(o.set / 2),
		Worker: uint8(worker), FanIn: uint8(len(j.workers)), Key: j.workers[worker].key, Round: s.round, Offset: s.offset,
		Bitmap: s.bitmap, Elements: s.elements, Scale: s.scale, NextScale: s.greater,
	}
	if o.Action == SendOne {
		f.Flags |= wire.AggregationRepeat
	}
	if s.saturated {
		f.Flags |= wire.AggregationSaturated
	}
	wire.Aggregation(into).Encode(&f)
	data := wire.Aggregation(into).Data()
	for i, value := range j.valuesOf(o.set, int(s.elements)) {
		binary.BigEndian.PutUint32(data[4*i:], value)
	}
}
