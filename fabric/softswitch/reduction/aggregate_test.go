package reduction

import (
	"fmt"
	"math"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// bench is a table with one job of number 7, at epoch 0.
type bench struct {
	t     *testing.T
	table *Table
	now   clock.Time
	key   []uint32
}

func newBench(t *testing.T, workers, slots, elements int) *bench {
	job := jobOf(7, workers, slots, elements)
	job.Timeout = time.Second
	table, err := New([]Job{job})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, table: table}
	for w := range workers {
		b.key = append(b.key, wire.AggregationKey(job.KeySeed, 7, 0, uint8(w)))
	}
	return b
}

// update returns an update of a worker in fixed point.
func (b *bench) update(worker, slot int, round uint32, values ...int32) wire.Aggregation {
	a := wire.Aggregation(make([]byte, wire.AggregationMessageLen(wire.AggregationFixed, len(values))))
	a.Encode(&wire.AggregationFields{
		Kind:   wire.AggregationUpdate,
		Type:   wire.AggregationFixed,
		Job:    7,
		Slot:   uint16(slot),
		Worker: uint8(worker),
		FanIn:  uint8(len(b.key)),
		Key:    b.key[worker], Round: round, Bitmap: 1 << worker, Elements: uint16(len(values)),
	})
	for i, v := range values {
		a.SetFixed(i, v)
	}
	return a
}

// send hands a message in, from a worker's address and port.
func (b *bench) send(worker int, a wire.Aggregation) Outcome {
	return b.table.Take(b.now, &Message{Data: a, From: addressOf(worker), Port: 9, Ingress: worker,
		Return: Return{To: addressOf(worker), Port: 9}})
}

// want checks an outcome.
func (b *bench) want(what string, o Outcome, action Action, reason Reason, code wire.AggregationCode) {
	b.t.Helper()
	if o.Action != action || o.Reason != reason || o.Reject.Code != code {
		b.t.Errorf("%s: %+v, want action %d, reason %s, code %s", what, o, action, reason, code)
	}
}

func (b *bench) result(o Outcome, worker int) wire.Aggregation {
	b.t.Helper()
	if o.Action != SendAll && o.Action != SendOne {
		b.t.Fatalf("%+v is no result", o)
	}
	into := make([]byte, b.table.ResultLen(&o))
	b.table.Result(&o, worker, into)
	if !wire.Aggregation(into).Valid() {
		b.t.Fatalf("an invalid result % x", into)
	}
	return into
}

// TestRules checks the rules of PROTOCOL.md, 3.2, one after the other.
func TestRules(t *testing.T) {
	b := newBench(t, 2, 1, 4)
	b.want("not the first round of a fresh set", b.send(0, b.update(0, 0, 2, 1)), SendBack, Taken,
		wire.AggregationMismatch)
	b.now += clock.Time(time.Second)
	b.want("the first", b.send(0, b.update(0, 0, 0, 1, 2)), Keep, Taken, 0)
	b.want("again, while the other is missing", b.send(0, b.update(0, 0, 0, 1, 2)), Keep, Taken, 0)
	b.want("the next but one, while the other is missing", b.send(0, b.update(0, 0, 2, 1, 2)), SendBack,
		Taken, wire.AggregationMismatch)
	for what, spoil := range map[string]func(wire.Aggregation){
		"type":     func(a wire.Aggregation) { a[2] = 1 },
		"offset":   func(a wire.Aggregation) { a[23] = 1 },
		"scale":    func(a wire.Aggregation) { a[34] = 1 },
		"elements": nil,
	} {
		a := b.update(1, 0, 0, 10, 20)
		if spoil == nil {
			a = b.update(1, 0, 0, 10)
		} else {
			spoil(a)
		}
		b.now += clock.Time(20 * time.Millisecond)
		o := b.send(1, a)
		b.want("another "+what, o, SendBack, Taken, wire.AggregationMismatch)
		if o.Reject.Bitmap != 1 || o.Reject.Slot != 0 || o.Reject.Worker != 1 || o.Reject.Elements != 0 ||
			o.Reject.Key != b.key[1] {
			t.Errorf("another %s: rejected with %+v", what, o.Reject)
		}
	}
	last := b.update(1, 0, 0, 10, 20)
	last[35] = 0xff // next scale -1
	o := b.send(1, last)
	b.want("the last", o, SendAll, Taken, 0)
	for w := range 2 {
		r := b.result(o, w)
		if f := r.Fields(); f.Key != b.key[w] || int(f.Worker) != w || f.Bitmap != 3 || f.FanIn != 2 ||
			f.Flags != 0 || f.NextScale != 0 || r.Fixed(0) != 11 || r.Fixed(1) != 22 {
			t.Errorf("result for %d: %+v, % x", w, f, r.Data())
		}
	}
	o = b.send(0, b.update(0, 0, 0, 1, 2))
	b.want("an update whose result was lost", o, SendOne, Taken, 0)
	if r := b.result(o, o.Child); o.Child != 0 || r.Flags() != wire.AggregationRepeat || r.Fixed(1) != 22 {
		t.Errorf("sent again to %d: %+v", o.Child, r.Fields())
	}
	b.now += clock.Time(20 * time.Millisecond)
	b.want("two rounds too far", b.send(0, b.update(0, 0, 4, 1)), SendBack, Taken, wire.AggregationMismatch)
	b.want("the other set", b.send(0, b.update(0, 0, 1, 5)), Keep, Taken, 0)
	b.want("the next of the first set", b.send(1, b.update(1, 0, 2, 5)), Keep, Taken, 0)
	b.want("a late copy", b.send(0, b.update(0, 0, 0, 1, 2)), Drop, Late, 0)
}

// TestRoundsWrap: rounds are serial numbers.
func TestRoundsWrap(t *testing.T) {
	b := newBench(t, 1, 1, 1)
	b.want("first", b.send(0, b.update(0, 0, 0, 1)), SendAll, Taken, 0)
	b.table.jobs[0].sets[0].round = math.MaxUint32 - 1
	b.want("the next", b.send(0, b.update(0, 0, 0, 1)), SendAll, Taken, 0)
	b.want("a late copy", b.send(0, b.update(0, 0, math.MaxUint32-1, 1)), Drop, Late, 0)
}

// TestErrors has the rows of PROTOCOL.md, 3.6.
func TestErrors(t *testing.T) {
	good := func(b *bench) wire.Aggregation { return b.update(0, 0, 0, 1) }
	with := func(at int, to byte) func(*bench) wire.Aggregation {
		return func(b *bench) wire.Aggregation { a := good(b); a[at] = to; return a }
	}
	for _, c := range []struct {
		name    string
		make    func(*bench) wire.Aggregation
		from    int // whose address
		ingress int
		action  Action
		reason  Reason
		code    wire.AggregationCode
	}{
		{"well", good, 0, 0, Keep, Taken, 0},
		{"short", func(b *bench) wire.Aggregation { return good(b)[:35] }, 0, 0, Drop, Short, 0},
		{"longer than it says", func(b *bench) wire.Aggregation {
			return append(good(b), 0)
		}, 0, 0, Drop, Malformed, 0},
		{"unknown kind", with(0, 0x35), 0, 0, Drop, Malformed, 0},
		{"unknown flag", with(1, 0x08), 0, 0, Drop, Malformed, 0},
		{"unknown type", with(2, 6), 0, 0, Drop, Malformed, 0},
		{"unknown operation", with(2, 0x32), 0, 0, Drop, Malformed, 0},
		{"greatest of fixed point", with(2, 0x12), 0, 0, Drop, Malformed, 0},
		{"another set than its round's", with(1, 1), 0, 0, Drop, Malformed, 0},
		{"bitmap of two", with(31, 3), 0, 0, Drop, Malformed, 0},
		{"a result", with(0, 0x32), 0, 0, Drop, NotUpdate, 0},
		{"a stranger", good, 100, 0, Drop, Stranger, 0},
		{"another worker's address", good, 1, 1, Drop, Stranger, 0},
		{"another port of the switch", good, 0, 1, Drop, Stranger, 0},
		{"another version", with(0, 0x11), 0, 0, SendBack, Taken, wire.AggregationVersionUnknown},
		{"another version, from a stranger", with(0, 0x11), 100, 0, Drop, Stranger, 0},
		{"another job", with(5, 8), 0, 0, SendBack, Taken, wire.AggregationJobUnknown},
		{"another job, from a stranger", with(5, 8), 100, 0, Drop, Stranger, 0},
		{"an older epoch", with(6, 0xff), 0, 0, SendBack, Taken, wire.AggregationEpochOld},
		{"a newer epoch with an old key", with(7, 1), 0, 0, SendBack, Taken, wire.AggregationWorkerWrong},
		{"another fan-in", with(11, 3), 0, 0, SendBack, Taken, wire.AggregationWorkerWrong},
		{"another fan-in, from a stranger", with(11, 3), 100, 0, Drop, Stranger, 0},
		{"another key", with(15, 0), 0, 0, SendBack, Taken, wire.AggregationWorkerWrong},
		{"beyond the pool", with(9, 2), 0, 0, SendBack, Taken, wire.AggregationSlotUnknown},
		{"too many elements", func(b *bench) wire.Aggregation {
			return b.update(0, 0, 0, 1, 2, 3)
		}, 0, 0, SendBack, Taken, wire.AggregationSlotUnknown},
	} {
		b := newBench(t, 2, 2, 2)
		a := c.make(b)
		message := &Message{Data: a, From: addressOf(c.from), Port: 9, Ingress: c.ingress}
		o := b.table.Take(0, message)
		b.want(c.name, o, c.action, c.reason, c.code)
		if c.action != SendBack {
			continue
		}
		reject := wire.Aggregation(make([]byte, wire.AggregationLen))
		reject.Encode(&o.Reject)
		if len(reject) > len(a) || reject.Kind() != wire.AggregationReject || reject.Key() != a.Key() ||
			reject.Round() != a.Round() || reject.Slot() != a.Slot() || !reject.Valid() {
			t.Errorf("%s: rejected with %+v", c.name, reject.Fields())
		}
		b.want(c.name+", at once again", b.table.Take(clock.Time(rejectEvery)-1, message), Drop, RejectLimit,
			0)
		b.want(c.name+", later", b.table.Take(clock.Time(rejectEvery), message), c.action, c.reason, c.code)
	}
}

// TestTimeout: the job is over when the slot that waits longest has waited too long, whichever
// worker sends then. A new epoch is not over.
func TestTimeout(t *testing.T) {
	b := newBench(t, 2, 3, 1)
	for slot := range 3 {
		b.now = clock.Time(slot) * 100_000_000
		b.want("begin", b.send(slot%2, b.update(slot%2, slot, 0, 1)), Keep, Taken, 0)
	}
	// The middle one of the list, then its oldest, become complete.
	b.want("complete", b.send(0, b.update(0, 1, 0, 1)), SendAll, Taken, 0)
	b.want("complete", b.send(1, b.update(1, 0, 0, 1)), SendAll, Taken, 0)
	if s := b.table.Status(0); s.Waiting != 1 || s.Over {
		t.Fatalf("%+v, want one that waits", s)
	}
	b.now = clock.Time(200*time.Millisecond + time.Second)
	b.want("in time", b.send(0, b.update(0, 2, 0, 1)), Keep, Taken, 0)
	b.now++
	o := b.send(1, b.update(1, 2, 0, 1))
	b.want("too late", o, SendBack, Taken, wire.AggregationTimeout)
	if o.Reject.Bitmap != 1 {
		t.Errorf("those that had come are %b, want 1", o.Reject.Bitmap)
	}
	b.want("in another slot", b.send(0, b.update(0, 0, 1, 1)), SendBack, Taken, wire.AggregationTimeout)
	if s := b.table.Status(0); !s.Over {
		t.Error("it is not over")
	}
	for w := range b.key {
		b.key[w] = wire.AggregationKey(0x1234567890abcdef, 7, 5, uint8(w))
	}
	a := b.update(1, 2, 0, 4)
	a[7] = 5
	b.want("a new epoch", b.send(1, a), Keep, Taken, 0)
	if s := b.table.Status(0); s.Over || s.Waiting != 1 || s.Epoch != 5 {
		t.Errorf("%+v, want a new epoch in which one waits", s)
	}
}

// TestNumbers: fixed point is clamped to its ends, which a flag reports. float32 follows IEEE 754.
func TestNumbers(t *testing.T) {
	b := newBench(t, 2, 2, 4)
	b.send(0, b.update(0, 0, 0, math.MaxInt32, math.MinInt32, 1, math.MinInt32))
	o := b.send(1, b.update(1, 0, 0, 1, -1, 2, math.MaxInt32))
	r := b.result(o, 0)
	if got, want := fmt.Sprint(r.Fixed(0), r.Fixed(1), r.Fixed(2), r.Fixed(3)),
		fmt.Sprint(math.MaxInt32, math.MinInt32, 3, -1); got != want ||
		r.Flags() != wire.AggregationSaturated {
		t.Errorf("%s with flags %d, want %s and saturated", got, r.Flags(), want)
	}
	inf := float32(math.Inf(1))
	for w, values := range [][]float32{{0.5, inf, 1 << 24, -0.25}, {0.25, -inf, 1, 0.25}} {
		a := b.update(w, 1, 0, 0, 0, 0, 0)
		a[2] = uint8(wire.AggregationFloat32)
		for i, v := range values {
			a.SetFloat(i, v)
		}
		o = b.send(w, a)
	}
	r = b.result(o, 1)
	if r.Float(0) != 0.75 || !math.IsNaN(float64(r.Float(1))) || r.Float(2) != 1<<24 || r.Float(3) != 0 ||
		r.Flags() != 0 {
		t.Errorf("%v %v %v %v", r.Float(0), r.Float(1), r.Float(2), r.Float(3))
	}
}

// TestResultsGoWhereTheLatestUpdateCameFrom, by its port; a late copy has none.
func TestResultsGoWhereTheLatestUpdateCameFrom(t *testing.T) {
	b := newBench(t, 1, 1, 1)
	for i, round := range []uint32{0, 1, 2, 0} {
		b.table.Take(0, &Message{Data: b.update(0, 0, round, 1), From: addressOf(0),
			Return: Return{Port: uint16(100 + i)}})
	}
	if got := b.table.Return(0, 0).Port; got != 102 {
		t.Errorf("results go to port %d, want 102", got)
	}
}

// TestNewRefuses what no table can be.
func TestNewRefuses(t *testing.T) {
	with := func(spoil func(*Job)) Job {
		j := jobOf(1, 3, 1, 1)
		spoil(&j)
		return j
	}
	for name, jobs := range map[string][]Job{
		"nobody":                    {jobOf(1, 0, 1, 1)},
		"65 workers":                {jobOf(1, 65, 1, 1)},
		"no slots":                  {jobOf(1, 1, 0, 1)},
		"two alike":                 {jobOf(1, 1, 1, 1), jobOf(1, 1, 1, 1)},
		"no job":                    nil,
		"a worker less at the root": {with(func(j *Job) { j.Children = j.Children[:2] })},
		"a worker twice":            {with(func(j *Job) { j.Children[2].Workers = 1 })},
		"a worker of two":           {with(func(j *Job) { j.Children[2].Workers = 12; j.FanIn = 4 })},
		"a worker beyond":           {with(func(j *Job) { j.Children[2].Workers = 8 })},
	} {
		if _, err := New(jobs); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	full, err := New([]Job{jobOf(1, 64, 1, 1), jobOf(2, 1, 1, 1)})
	if err != nil || full.jobs[0].all != math.MaxUint64 || full.jobs[1].all != 1 {
		t.Errorf("%v; full bitmaps are wrong", err)
	}
}

// FuzzTake passes in any messages that a worker of the job may send, correctly addressed. The table
// never panics, sends nothing invalid and nothing longer than the message that it answers, and
// holds no more sets than it has.
func FuzzTake(f *testing.F) {
	t := &testing.T{}
	b := newBench(t, 2, 2, 3)
	f.Add([]byte(b.update(0, 0, 0, 1, 2, 3)), []byte(b.update(1, 0, 0, 4, 5, 6)), uint32(5))
	f.Add([]byte(as(b.update(0, 0, 0, 1, 2), wire.AggregationFloat16, wire.AggregationSum)),
		[]byte(as(b.update(1, 0, 0, 4, 5), wire.AggregationFloat16, wire.AggregationSum)), uint32(5))
	f.Add([]byte(as(b.update(0, 0, 0, 1), wire.AggregationInt32, wire.AggregationMin)),
		[]byte(as(b.update(1, 0, 0, 4), wire.AggregationInt32, wire.AggregationMax)), uint32(5))
	f.Add([]byte(b.update(0, 1, 1, 1)), []byte(b.update(0, 1, 3, 4)), uint32(2_000_000_000))
	f.Fuzz(func(t *testing.T, first, second []byte, apart uint32) {
		b := newBench(t, 2, 2, 3)
		for i, data := range [][]byte{first, second, first, second} {
			if len(data) >= wire.AggregationLen && i < 2 { // fields that a fuzzer cannot guess
				copy(data[12:16], b.update(int(data[10]&1), 0, 0, 1)[12:16])
			}
			b.now += clock.Time(apart)
			for w := range 2 {
				o := b.send(w, data)
				switch o.Action {
				case SendAll, SendOne:
					if n := len(b.result(o, w)); n > len(data) {
						t.Fatalf("a result of %d bytes for %d", n, len(data))
					}
				case SendBack:
					if len(data) < wire.AggregationLen {
						t.Fatal("a reject that is longer than what it answers")
					}
				case Drop, Keep, SendUp:
				}
			}
		}
		if s := b.table.Status(0); s.Waiting > 4 {
			t.Fatalf("%d sets wait, and there are 4", s.Waiting)
		}
	})
}

// BenchmarkUpdate is one update of 256 elements, with its part of the results.
func BenchmarkUpdate(b *testing.B) {
	const workers, elements = 4, 256
	table, err := New([]Job{jobOf(7, workers, 1, elements)})
	if err != nil {
		b.Fatal(err)
	}
	t := &bench{table: table}
	for w := range workers {
		t.key = append(t.key, wire.AggregationKey(0x1234567890abcdef, 7, 0, uint8(w)))
	}
	messages := make([]wire.Aggregation, workers)
	for w := range messages {
		messages[w] = t.update(w, 0, 0, make([]int32, elements)...)
	}
	into := make([]byte, wire.AggregationMessageLen(wire.AggregationFixed, elements))
	b.ReportAllocs()
	b.SetBytes(4 * elements * workers)
	round := uint32(0)
	for b.Loop() {
		for w, a := range messages {
			f := a.Fields()
			f.Round = round
			a.Encode(&f)
			if o := t.send(w, a); o.Action == SendAll {
				for w := range workers {
					table.Result(&o, w, into)
				}
			}
		}
		round++
	}
}
