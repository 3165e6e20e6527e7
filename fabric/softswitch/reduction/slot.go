package reduction

import (
	"encoding/binary"
	"math"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
)

// update processes an update or partial sum of the job, as in PROTOCOL.md, 3.2.
func (t *Table) update(now clock.Time, m *Message, index, c int) Outcome {
	a, j := wire.Aggregation(m.Data), &t.jobs[index]
	at := 2*int(a.Slot()) + a.Set()
	s := &j.sets[at]
	fresh := s.life != j.life
	done := !fresh && s.state == complete
	var ahead int32
	if !fresh {
		ahead = int32(a.Round() - s.round)
	}
	workers := j.Children[c].Workers
	switch {
	case ahead < 0:
		return j.refuse(Late)
	case fresh || ahead > 0:
		if fresh && a.Round() != uint32(a.Set()) || !fresh && (ahead != 2 || !done) {
			return t.reject(now, m, index, c, wire.AggregationMismatch, s.had(fresh))
		}
		j.start(now, at, a)
	case s.bitmap&workers == 0:
		if a.Type() != s.kind || a.Op() != s.op || a.Offset() != s.offset || a.Scale() != s.scale ||
			a.Elements() != s.elements {
			return t.reject(now, m, index, c, wire.AggregationMismatch, s.bitmap)
		}
		j.add(at, a)
	default:
		return j.repeat(m, index, c, at)
	}
	s.bitmap |= workers
	j.children[c].back = m.Return
	j.counters.Updates++
	switch {
	case s.bitmap != j.below:
		return Outcome{Action: Keep, Job: index}
	case j.Parent != nil:
		j.move(now, int32(at), forParent)
		j.counters.Partials++
		return Outcome{Action: SendUp, Job: index, set: at}
	}
	j.move(now, int32(at), complete)
	j.counters.Results++
	return Outcome{Action: SendAll, Job: index, set: at}
}

// repeat handles a message of a child whose elements are already in the sum.
func (j *job) repeat(m *Message, index, c, at int) Outcome {
	s := &j.sets[at]
	j.children[c].back = m.Return
	j.counters.Repeats++
	switch {
	case s.state == complete:
		j.counters.Again++
		return Outcome{Action: SendOne, Job: index, set: at, again: true, Child: c}
	case s.state == forParent && j.ask(s, c):
		j.counters.Reasked++
		return Outcome{Action: SendUp, Job: index, set: at, again: true}
	}
	return Outcome{Action: Keep, Job: index}
}

// had returns the workers that are in the set.
func (s *set) had(fresh bool) uint64 {
	if fresh {
		return 0
	}
	return s.bitmap
}

// valuesOf returns the elements of a set.
func (j *job) valuesOf(at, elements int) []uint32 {
	from := at * j.Elements
	return j.values[from : from+elements]
}

// start starts the round of an update in a set.
func (j *job) start(now clock.Time, at int, a wire.Aggregation) {
	s := &j.sets[at]
	*s = set{
		round:    a.Round(),
		offset:   a.Offset(),
		life:     j.life,
		elements: a.Elements(),
		kind:     a.Type(),
		op:       a.Op(),
		scale:    a.Scale(), greater: a.NextScale(), saturated: isSaturated(a), state: complete,
	}
	j.move(now, int32(at), forChildren)
	j.set(at, a)
}

// set copies a message's elements to its set.
func (j *job) set(at int, a wire.Aggregation) {
	kind, data := a.Type(), a.Data()
	values := j.valuesOf(at, int(a.Elements()))
	for i := range values {
		values[i] = valueOf(kind, data, i)
	}
}

// valueOf returns an element of a message in the representation of a set.
func valueOf(kind wire.AggregationType, data []byte, i int) uint32 {
	switch kind {
	case wire.AggregationBFloat16:
		return math.Float32bits(element.FromBFloat16(binary.BigEndian.Uint16(data[2*i:])))
	case wire.AggregationFloat16:
		return math.Float32bits(element.FromFloat16(binary.BigEndian.Uint16(data[2*i:])))
	}
	return binary.BigEndian.Uint32(data[4*i:])
}

// isSaturated reports whether a message is a partial sum that left its range.
func isSaturated(a wire.Aggregation) bool {
	return a.Kind() == wire.AggregationPartial && a.Flags()&wire.AggregationSaturated != 0
}

// move moves a set from the list of its state to the end of another state's list.
func (j *job) move(now clock.Time, at int32, to state) {
	s := &j.sets[at]
	if s.state != complete {
		l := &j.waiting[s.state]
		if s.previous >= 0 {
			j.sets[s.previous].next = s.next
		} else {
			l.oldest = s.next
		}
		if s.next >= 0 {
			j.sets[s.next].previous = s.previous
		} else {
			l.newest = s.previous
		}
	}
	s.state, s.started = to, now
	if to == complete {
		return
	}
	l := &j.waiting[to]
	s.previous, s.next = l.newest, -1
	if l.newest >= 0 {
		j.sets[l.newest].next = at
	} else {
		l.oldest = at
	}
	l.newest = at
}

// add adds an update's elements to the elements of its set, or takes the greater or smaller ones.
func (j *job) add(at int, a wire.Aggregation) {
	s := &j.sets[at]
	s.greater = max(s.greater, a.NextScale())
	s.saturated = s.saturated || isSaturated(a)
	data := a.Data()
	values := j.valuesOf(at, int(s.elements))
	switch {
	case s.kind == wire.AggregationFloat32 && s.op == wire.AggregationSum: // the most frequent case
		for i, sum := range values {
			more := math.Float32frombits(binary.BigEndian.Uint32(data[4*i:]))
			values[i] = math.Float32bits(math.Float32frombits(sum) + more)
		}
		return
	case s.kind == wire.AggregationInt32:
		with := ofInts[s.op]
		for i, value := range values {
			values[i] = uint32(with(int32(value), int32(binary.BigEndian.Uint32(data[4*i:]))))
		}
		return
	case s.kind != wire.AggregationFixed:
		with := ofFloats[s.op]
		for i, value := range values {
			values[i] = math.Float32bits(
				with(math.Float32frombits(value), math.Float32frombits(valueOf(s.kind, data, i))))
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

// The operations on two elements.
var (
	ofFloats = [...]func(a, b float32) float32{
		wire.AggregationSum: func(a, b float32) float32 { return a + b },
		wire.AggregationMax: element.Larger[float32], wire.AggregationMin: element.Smaller[float32],
	}
	ofInts = [...]func(a, b int32) int32{
		wire.AggregationSum: func(a, b int32) int32 { return a + b },
		wire.AggregationMax: func(a, b int32) int32 { return max(a, b) },
		wire.AggregationMin: func(a, b int32) int32 { return min(a, b) },
	}
)

// Children returns the number of a job's children.
func (t *Table) Children(job int) int { return len(t.jobs[job].children) }

// Return returns the way by which a child's results go to it.
func (t *Table) Return(job, child int) *Return { return &t.jobs[job].children[child].back }

// ResultLen returns the length of the result, or partial sum, of an outcome, in bytes.
func (t *Table) ResultLen(o *Outcome) int {
	s := &t.jobs[o.Job].sets[o.set]
	return wire.AggregationMessageLen(s.kind, int(s.elements))
}

// Result writes the result for a child into ResultLen bytes.
func (t *Table) Result(o *Outcome, child int, into []byte) {
	j := &t.jobs[o.Job]
	f := j.fields(o)
	f.Kind, f.Worker, f.Key, f.Bitmap = wire.AggregationResult, j.Children[child].worker(),
		j.children[child].key, j.all
	j.write(o, &f, into)
}

// fields returns the common header fields of results and partial sums.
func (j *job) fields(o *Outcome) wire.AggregationFields {
	s := &j.sets[o.set]
	f := wire.AggregationFields{
		Type: s.kind, Op: s.op, Job: j.Number, Epoch: j.epoch, Slot: uint16(o.set / 2), FanIn: uint8(j.FanIn),
		Round: s.round, Offset: s.offset, Elements: s.elements, Scale: s.scale, NextScale: s.greater,
	}
	if o.again {
		f.Flags |= wire.AggregationRepeat
	}
	if s.saturated {
		f.Flags |= wire.AggregationSaturated
	}
	return f
}

func (j *job) write(o *Outcome, f *wire.AggregationFields, into []byte) {
	wire.Aggregation(into).Encode(f)
	data := wire.Aggregation(into).Data()
	values := j.valuesOf(o.set, int(f.Elements))
	switch f.Type {
	case wire.AggregationBFloat16:
		for i, value := range values {
			binary.BigEndian.PutUint16(data[2*i:], element.ToBFloat16(math.Float32frombits(value)))
		}
	case wire.AggregationFloat16:
		for i, value := range values {
			binary.BigEndian.PutUint16(data[2*i:], element.ToFloat16(math.Float32frombits(value)))
		}
	default:
		for i, value := range values {
			binary.BigEndian.PutUint32(data[4*i:], value)
		}
	}
}
