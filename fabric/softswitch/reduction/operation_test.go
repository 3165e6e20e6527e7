package reduction

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/internal/wire"
)

// The types and operations of switches.
var (
	types = []element.Type{element.Float32, element.BFloat16, element.Float16, element.Int32}
	ops   = []element.Op{element.Sum, element.Max, element.Min, element.Average}
)

// draw returns elements of a worker for combination, in memory: any bits, or whole numbers that are
// small enough for exact sums in the type.
func (m *model) draw(t element.Type, length int, whole bool) (own []byte) {
	for range length {
		switch {
		case whole:
			most := 1 << t.Digits() / len(m.workers)
			own = element.Append(t, own, float64(m.random.IntN(most/2+1)))
		case m.random.IntN(8) == 0 && t != element.Int32:
			odd := []float64{math.NaN(), math.Copysign(0, -1), 0, math.Inf(1), math.Inf(-1)}
			own = element.Append(t, own, odd[m.random.IntN(len(odd))])
		case t == element.Int32:
			own = element.Append(t, own, float64(int32(m.random.Uint32())))
		default:
			own = element.Append(t, own, float64(
				float32(math.Ldexp(m.random.Float64()*2-1, m.random.IntN(10)))))
		}
	}
	return own
}

// combine runs a drawn operation on a tensor of a drawn type, and compares the result with the
// direct combination of the ranks' elements. They are equal bit by bit, except for the rounding of
// sums, whose bound is in PROTOCOL.md, 3.5.
func (m *model) combine(length int) error {
	t, op := types[m.random.IntN(len(types))], ops[m.random.IntN(len(ops))]
	return m.combineOf(t, op, length, m.random.IntN(2) == 0)
}

func (m *model) combineOf(t element.Type, op element.Op, length int, whole bool) error {
	ranks := len(m.workers)
	var want []byte
	var own [][]byte
	exact, size := make([]float64, length), make([]float64, length)
	for w, one := range m.workers {
		memory := m.draw(t, length, whole)
		own = append(own, memory)
		if w == 0 {
			want = bytes.Clone(memory)
		} else {
			element.Combiner(t, op, element.Terms{A: w, B: 1, Ranks: ranks})(want, want, memory)
		}
		prepared := bytes.Clone(memory)
		element.Prepare(t, op, ranks, prepared)
		for i := range exact {
			value := element.At(t, prepared, i)
			exact[i] += value
			size[i] += math.Abs(value)
		}
		if err := one.Combine(m.now, t, op, memory); err != nil {
			return err
		}
	}
	m.run()
	rounds := t != element.Int32 && (op == element.Average || op == element.Sum && !whole)
	off := math.Pow(1+math.Ldexp(1, -24), float64(ranks-1))
	if t.Size() == 2 {
		off *= math.Pow(1+math.Ldexp(1, -t.Digits()), float64(m.height()))
	}
	for w, one := range m.workers {
		if one.Err() != nil {
			return fmt.Errorf("worker %d: %w", w, one.Err())
		}
		if !bytes.Equal(own[w], own[0]) {
			return fmt.Errorf("%s of %s: worker %d has % x, worker 0 % x", op, t, w, own[w], own[0])
		}
	}
	for i := range length {
		got, ring := element.At(t, own[0], i), element.At(t, want, i)
		switch {
		case math.IsNaN(exact[i]) && rounds || math.IsNaN(ring) && !rounds:
			if !math.IsNaN(got) {
				return fmt.Errorf("%s of %s, element %d: %v, want a NaN", op, t, i, got)
			}
		case !rounds && math.Float64bits(got) != math.Float64bits(ring):
			return fmt.Errorf("%s of %s, element %d: %v, want %v", op, t, i, got, ring)
		case rounds && got != exact[i] && !(math.Abs(got-exact[i]) <= (off-1)*size[i]):
			return fmt.Errorf("%s of %s, element %d: %v, want %v, and at most %v from it", op, t, i, got,
				exact[i], (off-1)*size[i])
		}
	}
	return nil
}

// height is the most switches between a worker and the root, both included.
func (m *model) height() (most int) {
	above := make([]int, len(m.tables))
	for _, s := range m.stations {
		if s.table >= 0 {
			above[s.table] = s.parent
		}
	}
	for at := range above {
		high := 0
		for ; at >= 0; at = above[at] {
			high++
		}
		most = max(most, high)
	}
	return most
}

// TestOperations: every operation on every type, of up to 64 workers at one switch and at
// trees of up to 8.
func TestOperations(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8, 17, 64} {
		for _, switches := range []int{1, 2, 3, 8} {
			if switches > workers {
				continue
			}
			m := newModel(t, rand.New(rand.NewPCG(uint64(workers), uint64(switches))), workers, switches, 2,
				50)
			m.spread = int64(time.Millisecond)
			m.begin(0)
			for _, kind := range types {
				for _, op := range ops {
					for _, whole := range []bool{false, true} {
						if err := m.combineOf(kind, op, 120, whole); err != nil {
							t.Errorf("%d workers at %d switches: %v", workers, switches, err)
						}
					}
				}
			}
		}
	}
}

// as makes a message one of another operation and type, whose elements are no longer.
func as(a wire.Aggregation, kind wire.AggregationType, op wire.AggregationOp) wire.Aggregation {
	f := a.Fields()
	f.Type, f.Op = kind, op
	a.Encode(&f)
	return a[:wire.AggregationMessageLen(kind, int(f.Elements))]
}

// TestOneOperation: a different operation at the same place is a mismatch, also in messages from
// the parent.
func TestOneOperation(t *testing.T) {
	for _, other := range []struct {
		kind wire.AggregationType
		op   wire.AggregationOp
	}{
		{wire.AggregationInt32, wire.AggregationSum}, {wire.AggregationInt32, wire.AggregationMin},
		{wire.AggregationFloat32, wire.AggregationMax},
		{wire.AggregationBFloat16, wire.AggregationMax}, {wire.AggregationFloat16, wire.AggregationMax},
		{wire.AggregationFixed, wire.AggregationSum},
	} {
		b := newBench(t, 2, 1, 4)
		b.want("the first", b.send(
			0, as(b.update(0, 0, 0, 1, 2), wire.AggregationInt32, wire.AggregationMax)), Keep, Taken, 0)
		o := b.send(1, as(b.update(1, 0, 0, 1, 2), other.kind, other.op))
		b.want(fmt.Sprintf("%+v", other), o, SendBack, Taken, wire.AggregationMismatch)
		if o.Reject.Op != other.op || o.Reject.Type != other.kind {
			t.Errorf("rejected with %+v, which does not repeat %+v", o.Reject, other)
		}
	}
	b := &bench{t: t, table: newTwoLeaves(t).tables[1], key: make([]uint32, 4)}
	for w := range b.key {
		b.key[w] = wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w))
		if w < 2 {
			b.send(w, as(b.update(w, 0, 0, 1), wire.AggregationInt32, wire.AggregationMax))
		}
	}
	answer := func(op wire.AggregationOp) wire.Aggregation {
		return as(b.answer(wire.AggregationResult, 0, 15, 10), wire.AggregationInt32, op)
	}
	b.want("another operation's answer", b.send(above, answer(wire.AggregationMin)), Drop, Malformed, 0)
	b.want("the answer", b.send(above, answer(wire.AggregationMax)), SendAll, Taken, 0)
}
