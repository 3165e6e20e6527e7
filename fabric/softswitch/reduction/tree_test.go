package reduction

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/wire"
)

// newTwoLeaves is two leaves of two workers each below a root. Workers are stations 0 to 3, leaf2
// is 4, leaf1 5 and the root 6; the tables are root, leaf1, leaf2.
func newTwoLeaves(t *testing.T) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(1, 2)), most: 10_000, spread: 1, ups: map[[4]int]int{}}
	jobs := []Job{jobOf(7, 4, 2, 3), jobOf(7, 4, 2, 3), jobOf(7, 4, 2, 3)}
	for i := range 2 {
		jobs[1+i].Children = jobs[1+i].Children[2*i : 2*i+2]
		jobs[1+i].Parent = &Parent{Station: stationOf(above), Timeout: 3 * time.Second}
		jobs[1+i].Timeout = time.Second
	}
	jobs[0].Children = []Child{{Station: stationOf(5), Workers: 0b0011, Switch: true},
		{Station: stationOf(4), Workers: 0b1100, Switch: true}}
	jobs[0].Timeout = 2 * time.Second
	for w := range 4 {
		m.stations = append(m.stations, station{parent: 1 + w/2, table: -1, worker: w})
	}
	m.stations = append(m.stations, station{parent: 0, table: 2}, station{parent: 0, table: 1},
		station{parent: -1, table: 0})
	for _, j := range jobs {
		table, err := New([]Job{j})
		if err != nil {
			t.Fatal(err)
		}
		m.tables = append(m.tables, table)
	}
	m.begin(0)
	return m
}

// TestLossInEveryPlace: one message, or several after each other, is lost on each line and each way.
// Sums are right, and a step that was not lost is not repeated further up.
func TestLossInEveryPlace(t *testing.T) {
	for _, test := range []struct {
		name    string
		station int
		up      bool
		// leaf1 and leaf2 are set if the leaf has to repeat its request to the root; asks is set if
		// any switch may.
		leaf1, leaf2, asks bool
	}{
		{"worker 0 to leaf1", 0, true, false, true, true}, // leaf2's workers have no notice of that
		{"leaf1 to the root", 5, true, true, false, true},
		{"root to leaf1", 5, false, true, false, true},
		{"root to leaf2", 4, false, false, true, true},
		{"leaf1 to worker 0", 0, false, false, false, false},
	} {
		for lost := 1; lost <= 3; lost++ {
			m := newTwoLeaves(t)
			left := lost
			m.drop = func(d delivery) bool {
				if d.station == test.station && d.up == test.up && left > 0 {
					left--
					return true
				}
				return false
			}
			for tensor := range 2 {
				if err := m.sums(tensor, 20, 0); err != nil {
					t.Fatalf("%s, %d lost: %v", test.name, lost, err)
				}
			}
			root, leaf1, leaf2 := m.tables[0].Counters(0), m.tables[1].Counters(0), m.tables[2].Counters(0)
			if left > 0 || test.leaf1 && leaf1.Reasked == 0 || test.leaf2 && leaf2.Reasked == 0 ||
				!test.asks && leaf1.Reasked+leaf2.Reasked+root.Again > 0 ||
				root.Updates != root.Results*2 || leaf1.Partials != root.Results ||
				leaf2.Partials != root.Results {
				t.Errorf("%s, %d lost:\nroot  %+v\nleaf1 %+v\nleaf2 %+v", test.name, lost, *root, *leaf1,
					*leaf2)
			}
		}
	}
}

// TestOneQuestionGoesUp: one request goes up for the requests of all children, until a child
// repeats its request.
func TestOneQuestionGoesUp(t *testing.T) {
	m := newTwoLeaves(t)
	b := &bench{t: t, table: m.tables[1], key: make([]uint32, 4)}
	for w := range b.key {
		b.key[w] = wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w))
	}
	b.want("one", b.send(0, b.update(0, 0, 0, 1)), Keep, Taken, 0)
	b.want("all", b.send(1, b.update(1, 0, 0, 2)), SendUp, Taken, 0)
	for i, want := range []struct {
		worker int
		action Action
	}{{0, SendUp}, {1, Keep}, {1, SendUp}, {0, Keep}, {0, SendUp}, {0, SendUp}} {
		if o := b.send(want.worker, b.update(want.worker, 0, 0, 1)); o.Action != want.action {
			t.Errorf("question %d, of worker %d: action %d, want %d", i, want.worker, o.Action, want.action)
		}
	}
}

// answer returns the root's message to leaf1.
func (b *bench) answer(kind wire.AggregationKind, code wire.AggregationCode, bitmap uint64,
	values ...int32) wire.Aggregation {
	a := wire.Aggregation(make([]byte, wire.AggregationMessageLen(wire.AggregationFixed, len(values))))
	a.Encode(&wire.AggregationFields{
		Kind:     kind,
		Code:     code,
		Type:     wire.AggregationFixed,
		Job:      7,
		FanIn:    4,
		Key:      b.table.jobs[0].up,
		Bitmap:   bitmap,
		Elements: uint16(len(values)),
	})
	for i, v := range values {
		a.SetFixed(i, v)
	}
	return a
}

// TestAnswers are the rules of PROTOCOL.md, 3.3.
func TestAnswers(t *testing.T) {
	m := newTwoLeaves(t)
	b := &bench{t: t, table: m.tables[1], key: make([]uint32, 4)}
	for w := range b.key {
		b.key[w] = wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w))
	}
	result := func(spoil func(wire.Aggregation)) Outcome {
		a := b.answer(wire.AggregationResult, 0, 15, 10)
		if spoil != nil {
			spoil(a)
		}
		return b.send(above, a)
	}
	b.want("nothing was sent up", result(nil), Drop, Late, 0)
	b.send(0, b.update(0, 0, 0, 1))
	b.want("not all have come", result(nil), Drop, Late, 0)
	b.want("sent up", b.send(1, b.update(1, 0, 0, 2)), SendUp, Taken, 0)
	b.want("by somebody else", b.send(3, b.answer(wire.AggregationResult, 0, 15, 10)), Drop, Stranger, 0)
	for what, test := range map[string]struct {
		spoil func(wire.Aggregation)
		why   Reason
	}{
		"another key":         {func(a wire.Aggregation) { a[15] ^= 1 }, Late},
		"another round":       {func(a wire.Aggregation) { a[19] = 2 }, Late},
		"another slot":        {func(a wire.Aggregation) { a[9] = 1 }, Late},
		"a slot beyond":       {func(a wire.Aggregation) { a[9] = 2 }, Late},
		"without a worker":    {func(a wire.Aggregation) { a[31] = 7 }, Malformed},
		"another type":        {func(a wire.Aggregation) { a[2] = 3 }, Malformed},
		"another offset":      {func(a wire.Aggregation) { a[23] = 1 }, Malformed},
		"another scale":       {func(a wire.Aggregation) { a[34] = 1 }, Malformed},
		"another epoch":       {func(a wire.Aggregation) { a[7] = 1 }, Malformed},
		"another fan-in":      {func(a wire.Aggregation) { a[11] = 5 }, Malformed},
		"a reject of no code": {func(a wire.Aggregation) { a[0], a[3] = 0x33, 0 }, Malformed},
	} {
		b.want(what, result(test.spoil), Drop, test.why, 0)
	}
	b.want("other elements", b.send(above, b.answer(wire.AggregationResult, 0, 15, 10, 11)), Drop, Malformed,
		0)
	b.want("an unknown code", b.send(above, b.answer(wire.AggregationReject, 99, 15)), Drop, Malformed, 0)
	b.want("a reject", b.send(1, b.update(1, 0, 2, 2)), SendBack, Taken, wire.AggregationMismatch)
	o := result(func(a wire.Aggregation) { a[1] |= wire.AggregationSaturated; a[35] = 5 })
	b.want("the result", o, SendAll, Taken, 0)
	if r := b.result(o, 1); r.Fixed(0) != 10 || r.Bitmap() != 15 || r.NextScale() != 5 ||
		r.Flags() != wire.AggregationSaturated || r.Key() != b.key[1] || r.Worker() != 1 {
		t.Errorf("handed down %+v", r.Fields())
	}
	b.want("the result again", result(nil), Drop, Late, 0)
	b.want("for one who missed it", b.send(0, b.update(0, 0, 0, 1)), SendOne, Taken, 0)
	if s := b.table.Status(0); s.Waiting != 0 {
		t.Errorf("%d sets wait", s.Waiting)
	}
}

// TestWhoIsMissing: every worker gets a message that names the missing worker, wherever that is. A
// leaf whose root is silent names all the others.
func TestWhoIsMissing(t *testing.T) {
	m := newTwoLeaves(t)
	m.drop = func(d delivery) bool { return d.station == 3 && d.up }
	rejectOf := func(w int) (code wire.AggregationCode, present uint64) {
		a := wire.Aggregation(make([]byte, wire.AggregationMessageLen(wire.AggregationFixed, 1)))
		a.Encode(&wire.AggregationFields{
			Kind:     wire.AggregationUpdate,
			Type:     wire.AggregationFixed,
			Job:      7,
			Worker:   uint8(w),
			FanIn:    4,
			Bitmap:   1 << w,
			Elements: 1,
			Key:      wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w)),
		})
		o := m.take(m.stations[w].parent, &Message{Data: a, From: addressOf(w), Port: 1000, Ingress: w})
		for m.wires.Len() > 0 {
			at, d := m.wires.Pop()
			m.now = max(m.now, at)
			m.arrive(d)
		}
		return o.Reject.Code, o.Reject.Bitmap
	}
	for _, w := range []int{0, 1, 2} {
		if code, _ := rejectOf(w); code != 0 {
			t.Fatalf("worker %d: %s", w, code)
		}
	}
	m.now = m.now.Add(1100 * time.Millisecond)
	if code, _ := rejectOf(0); code != 0 {
		t.Errorf("leaf1, which has sent its sum up, gives up with %s", code)
	}
	if code, present := rejectOf(2); code != wire.AggregationTimeout || present != 0b0111 {
		t.Errorf("leaf2 says %s, present %b; want all but worker 3", code, present)
	}
	m.now = m.now.Add(time.Second)
	rejectOf(0) // the root's answer comes to leaf1
	if code, present := rejectOf(0); code != wire.AggregationTimeout || present != 0b0011 {
		t.Errorf("leaf1 says %s, present %b; want the root's", code, present)
	}
	m = newTwoLeaves(t)
	m.drop = func(d delivery) bool { return d.station == 5 }
	for _, w := range []int{0, 1} {
		rejectOf(w)
	}
	m.now = m.now.Add(3*time.Second + 1)
	if code, present := rejectOf(1); code != wire.AggregationTimeout || present != 0b0011 {
		t.Errorf("leaf1 without a root says %s, present %b", code, present)
	}
}

// TestSaturation: saturation of a leaf's sum is also set in the result, and sums that wrap around
// do not saturate.
func TestSaturation(t *testing.T) {
	for _, test := range []struct {
		kind   wire.AggregationType
		values [4]int32
		want   int32
		flags  uint8
	}{
		{wire.AggregationFixed, [4]int32{math.MaxInt32, 1, -5, -6}, math.MaxInt32 - 11,
			wire.AggregationSaturated},
		{wire.AggregationFixed, [4]int32{-5, -6, math.MaxInt32, 1}, math.MaxInt32 - 11,
			wire.AggregationSaturated},
		{wire.AggregationInt32, [4]int32{math.MaxInt32, 1, -5, -6}, math.MaxInt32 - 10, 0},
	} {
		m := newTwoLeaves(t)
		var got wire.Aggregation
		m.drop = func(d delivery) bool {
			if d.station == 0 && !d.up {
				got = append(wire.Aggregation(nil), d.data...)
			}
			return d.station < 4
		}
		for w, v := range test.values {
			a := wire.Aggregation(make([]byte, wire.AggregationMessageLen(wire.AggregationFixed, 1)))
			a.Encode(&wire.AggregationFields{
				Kind:     wire.AggregationUpdate,
				Type:     test.kind,
				Job:      7,
				Worker:   uint8(w),
				FanIn:    4,
				Bitmap:   1 << w,
				Elements: 1,
				Key:      wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w)),
			})
			a.SetFixed(0, v)
			m.take(m.stations[w].parent, &Message{Data: a, From: addressOf(w), Port: 1000, Ingress: w})
			for m.wires.Len() > 0 {
				_, d := m.wires.Pop()
				m.arrive(d)
			}
		}
		if got == nil || got.Fixed(0) != test.want || got.Flags() != test.flags {
			t.Errorf("type %d: % x, want %d with flags %d", test.kind, []byte(got), test.want, test.flags)
		}
	}
}

// FuzzAnswer passes a leaf any message of its parent, with the right addresses and key, between
// updates. The leaf never panics, and sends nothing invalid.
func FuzzAnswer(f *testing.F) {
	m := newTwoLeaves(&testing.T{})
	b := &bench{table: m.tables[1], key: make([]uint32, 4)}
	f.Add([]byte(b.answer(wire.AggregationResult, 0, 15, 10)), uint8(2))
	f.Add([]byte(as(b.answer(wire.AggregationResult, 0, 15, 10), wire.AggregationBFloat16,
		wire.AggregationMin)), uint8(2))
	f.Add([]byte(b.answer(wire.AggregationReject, wire.AggregationTimeout, 3)), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, before uint8) {
		m := newTwoLeaves(t)
		b := &bench{t: t, table: m.tables[1], key: make([]uint32, 4)}
		for w := range b.key {
			b.key[w] = wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w))
		}
		for w := range min(before, 2) {
			b.send(int(w), b.update(int(w), 0, 0, 1))
		}
		if len(data) >= wire.AggregationLen {
			copy(data[12:16], b.answer(wire.AggregationResult, 0, 15, 1)[12:16])
		}
		for _, from := range []int{above, 0} {
			if o := b.send(from, data); o.Action == SendAll || o.Action == SendOne {
				b.result(o, 0)
			} else if o.Action == SendUp {
				into := wire.Aggregation(make([]byte, b.table.ResultLen(&o)))
				if b.table.Partial(&o, into); !into.Valid() {
					t.Fatalf("sent up % x", into)
				}
			}
		}
		if o := b.send(0, b.update(0, 0, 0, 1)); o.Action == SendBack &&
			(o.Reject.Code == 0 || int(o.Reject.Code) >= wire.AggregationCodes) {
			t.Fatalf("rejected with %+v", o.Reject)
		}
	})
}
