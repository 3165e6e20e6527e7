package aggregation

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
)

func newWorker(t testing.TB, slots, elements int) *Worker {
	t.Helper()
	w, err := New(Config{Job: 5, Epoch: 2, KeySeed: 0x0123456789abcdef, Worker: 1, FanIn: 4, Slots: slots,
		Elements: elements, InitialRTO: 10 * time.Millisecond, MinRTO: 2 * time.Millisecond,
		MaxRTO: 35 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// answer is the result of an update, with the elements that a switch gave them.
func answer(update []byte, values ...int32) wire.Aggregation {
	a := wire.Aggregation(bytes.Clone(update))
	f := a.Fields()
	f.Kind, f.Bitmap, f.Flags = wire.AggregationResult, 0b1111, 0
	a.Encode(&f)
	for i, v := range values {
		a.SetFixed(i, v)
	}
	return a
}

func poll(t testing.TB, w *Worker, now clock.Time) wire.Aggregation {
	t.Helper()
	m := w.Poll(now)
	if m == nil {
		t.Fatalf("nothing to send at %d", now)
	}
	return bytes.Clone(m)
}

// TestUpdates: chunks go out a slot each, and the next of a slot with the result
// of the one before.
func TestUpdates(t *testing.T) {
	w := newWorker(t, 2, 2)
	data := []int32{1, 2, 3, 4, 5, 6, 7}
	w.Int32(0, data)
	want := []wire.AggregationFields{
		{Slot: 0, Round: 0, Offset: 0, Elements: 2}, {Slot: 1, Round: 0, Offset: 2, Elements: 2},
		{Slot: 0, Round: 1, Offset: 4, Elements: 2}, {Slot: 1, Round: 1, Offset: 6, Elements: 1},
	}
	var sent []wire.Aggregation
	for i, f := range want {
		if i == 2 {
			if w.Poll(0) != nil {
				t.Fatal("more slots than there are")
			}
			w.Handle(1, answer(sent[0], 10, 20))
			w.Handle(1, answer(sent[1], 30, 40))
		}
		m := poll(t, w, clock.Time(i))
		sent = append(sent, m)
		f.Kind, f.Type, f.Job, f.Epoch, f.Worker, f.FanIn = wire.AggregationUpdate, wire.AggregationFixed, 5,
			2, 1, 4
		f.Key, f.Bitmap, f.Flags = 0xdfc3b519, 2, uint8(f.Round&1)
		if !m.Valid() || m.Fields() != f || m.Fixed(0) != int32(f.Offset)+1 {
			t.Errorf("update %d: %+v, want %+v", i, m.Fields(), f)
		}
	}
	w.Handle(5, answer(sent[3], 70))
	if w.Done() {
		t.Error("done without the last result")
	}
	w.Handle(5, answer(sent[2], 50, 60))
	if !w.Done() || w.Err() != nil || w.Next() != clock.Never || w.Poll(1<<40) != nil {
		t.Errorf("not done: %v", w.Err())
	}
	for i, v := range data {
		if v != int32(i+1)*10 {
			t.Fatalf("sums %v", data)
		}
	}
}

// TestRepeats: an update is sent again after 10 ms, after 20 more, and then every 35. Only its flag
// differs. The time grows for new updates until a round trip is measured.
func TestRepeats(t *testing.T) {
	w := newWorker(t, 1, 1)
	w.Int32(0, []int32{7, 8, 9})
	first := poll(t, w, 0)
	const ms = clock.Time(time.Millisecond)
	for _, at := range []clock.Time{10 * ms, 30 * ms, 65 * ms, 100 * ms} {
		if next := w.Next(); next != at || w.Poll(at-1) != nil {
			t.Fatalf("the next is at %v, want %v", next, at)
		}
		again := poll(t, w, at)
		if again.Flags() != first.Flags()|wire.AggregationRepeat {
			t.Errorf("flags %#x", again.Flags())
		}
		if again[1] = first[1]; !bytes.Equal(again, first) {
			t.Errorf("repeated as % x, was % x", again, first)
		}
	}
	w.Handle(101*ms, answer(first, 28))
	second := poll(t, w, 101*ms)
	if w.Next() != 136*ms {
		t.Errorf("the next is at %v, want 35 ms later", w.Next())
	}
	w.Handle(105*ms, answer(second, 32)) // 4 ms: 4 + 4*2 = 12
	poll(t, w, 105*ms)
	if w.Next() != 117*ms {
		t.Errorf("the next is at %v, want 12 ms later", w.Next())
	}
}

// TestLossDoesNotSlowOthers: if another update's round trip was measured meanwhile, a repeated
// update was lost, and new updates do not wait longer.
func TestLossDoesNotSlowOthers(t *testing.T) {
	w := newWorker(t, 2, 1)
	w.Int32(0, []int32{1, 2, 3, 4, 5, 6})
	const ms = clock.Time(time.Millisecond)
	poll(t, w, 0) // and is lost
	w.Handle(4*ms, answer(poll(t, w, 0), 8))
	m := poll(t, w, 4*ms)
	if again := poll(t, w, 10*ms); again.Slot() != 0 || again.Flags()&wire.AggregationRepeat == 0 {
		t.Fatalf("%+v, want the lost one again", again.Fields())
	}
	w.Handle(11*ms, answer(m, 16)) // 7 ms: (7/8)*4 + 7/8 + 4 * ((3/4)*2 + 3/4)
	poll(t, w, 11*ms)
	if got, want := w.slots[1].deadline-11*ms, clock.Time(13_375_000); got != want {
		t.Errorf("the new one is repeated after %d, want %d", got, want)
	}
}

// TestOvertaken: an update is sent again early, once, when three later ones are answered. An update
// that waits no longer than those is not.
func TestOvertaken(t *testing.T) {
	w := newWorker(t, 5, 1)
	w.Int32(0, make([]int32, 20))
	const ms = clock.Time(time.Millisecond)
	lost := bytes.Clone(poll(t, w, 0))
	var others []wire.Aggregation
	for range 4 {
		others = append(others, bytes.Clone(poll(t, w, 0)))
	}
	w.Handle(ms, answer(others[0], 4))
	w.Handle(ms, answer(others[1], 4))
	for range 2 {
		if m := poll(t, w, ms); m.Flags()&wire.AggregationRepeat != 0 {
			t.Fatalf("%+v after two others were answered", m.Fields())
		}
	}
	w.Handle(ms, answer(others[2], 4))
	again := poll(t, w, ms)
	if again.Flags()&wire.AggregationRepeat == 0 || again.Slot() != wire.Aggregation(lost).Slot() {
		t.Fatalf("%+v, want the one that was overtaken", again.Fields())
	}
	poll(t, w, ms)
	w.Handle(ms, answer(others[3], 4))
	poll(t, w, ms)
	if w.Poll(ms) != nil || w.Counters().Overtaken != 1 || w.Counters().Repeated != 1 {
		t.Errorf("%+v, want nothing more before its time", w.Counters())
	}
}

// TestIgnores whatever does not answer the open update.
func TestIgnores(t *testing.T) {
	w := newWorker(t, 1, 2)
	data := []int32{1, 2, 3, 4}
	w.Int32(0, data)
	update := poll(t, w, 0)
	for name, spoil := range map[string]func(wire.Aggregation) wire.Aggregation{
		"an update":         func(a wire.Aggregation) wire.Aggregation { a[0] = 0x31; return a },
		"another job":       func(a wire.Aggregation) wire.Aggregation { a[5]++; return a },
		"another epoch":     func(a wire.Aggregation) wire.Aggregation { a[7]++; return a },
		"another slot":      func(a wire.Aggregation) wire.Aggregation { a[9]++; return a },
		"another worker":    func(a wire.Aggregation) wire.Aggregation { a[10]++; return a },
		"another fan-in":    func(a wire.Aggregation) wire.Aggregation { a[11]++; return a },
		"another key":       func(a wire.Aggregation) wire.Aggregation { a[12]++; return a },
		"another round":     func(a wire.Aggregation) wire.Aggregation { a[19] += 2; return a },
		"another offset":    func(a wire.Aggregation) wire.Aggregation { a[23]++; return a },
		"a part of the sum": func(a wire.Aggregation) wire.Aggregation { a[31] = 0b0111; return a },
		"fewer elements":    func(a wire.Aggregation) wire.Aggregation { a[33]--; return a[:len(a)-4] },
		"another type":      func(a wire.Aggregation) wire.Aggregation { a[2] = 1; return a },
		"cut off":           func(a wire.Aggregation) wire.Aggregation { return a[:len(a)-1] },
		"nothing":           func(wire.Aggregation) wire.Aggregation { return nil },
		"a reject of another round": func(a wire.Aggregation) wire.Aggregation {
			a[0], a[3], a[19] = 0x33, byte(wire.AggregationMismatch), 9
			return a
		},
		"a reject with another key": func(a wire.Aggregation) wire.Aggregation {
			a[0], a[3], a[13] = 0x33, byte(wire.AggregationMismatch), 9
			return a
		},
	} {
		if w.Handle(0, spoil(answer(update, 5, 6))); w.Done() || w.slots[0].round != 0 || data[0] != 1 {
			t.Fatalf("%s counts: %v, %v", name, w.Err(), data)
		}
	}
	w.Handle(0, answer(update, 5, 6))
	w.Handle(0, answer(update, 50, 60)) // twice
	if data[0] != 5 || data[1] != 6 || data[2] != 3 || w.open != 1 {
		t.Errorf("%v, %d open", data, w.open)
	}
}

// TestCombineRefuses what is no type or operation, and part of an element.
func TestCombineRefuses(t *testing.T) {
	w := newWorker(t, 1, 1)
	for _, c := range []struct {
		kind  element.Type
		op    element.Op
		bytes int
	}{{"double", element.Sum, 8}, {element.Float32, element.None, 8}, {element.Float32, "prod", 8},
		{element.Float16, element.Max, 3}} {
		if err := w.Combine(0, c.kind, c.op, make([]byte, c.bytes)); err == nil || w.Poll(0) != nil {
			t.Errorf("%s of %d bytes of %s: %v", c.op, c.bytes, c.kind, err)
		}
	}
}

// TestEnds: rejects, saturation and silence end a worker with an error.
func TestEnds(t *testing.T) {
	begin := func() (*Worker, wire.Aggregation) {
		w := newWorker(t, 1, 1)
		w.Int32(0, []int32{1})
		return w, poll(t, w, 0)
	}
	w, update := begin()
	reject := answer(update)[:wire.AggregationLen]
	f := reject.Fields()
	f.Kind, f.Code, f.Elements, f.Bitmap = wire.AggregationReject, wire.AggregationTimeout, 0, 0b0110
	reject.Encode(&f)
	w.Handle(1, reject)
	var rejected *RejectError
	if !errors.As(w.Err(), &rejected) || rejected.Code != wire.AggregationTimeout || rejected.Present != 6 ||
		!w.Done() || !strings.Contains(w.Err().Error(), "bitmap 0x6") {
		t.Errorf("%v", w.Err())
	}
	w, update = begin()
	full := answer(update, math.MaxInt32)
	full[1] |= wire.AggregationSaturated
	if w.Handle(1, full); !errors.Is(w.Err(), ErrSaturated) {
		t.Errorf("%v, want ErrSaturated", w.Err())
	}
	w, _ = begin()
	const patience = clock.Time(30 * time.Second)
	if w.Poll(patience-1) == nil || w.Err() != nil {
		t.Error("it gave up too early")
	}
	if w.Poll(patience) != nil || !errors.Is(w.Err(), ErrSilent) {
		t.Errorf("%v, want ErrSilent", w.Err())
	}
}

// TestFixed: the scale of a chunk is asked for one round before it, and the
// greatest that the switch answers is used.
func TestFixed(t *testing.T) {
	w := newWorker(t, 1, 2)
	data := []float32{1, -0.5, 100}
	if err := w.Fixed(0, []float32{1, float32(math.Inf(1))}); err == nil {
		t.Error("infinity has a fixed point")
	}
	if err := w.Fixed(0, data); err != nil {
		t.Fatal(err)
	}
	m := poll(t, w, 0)
	if m.Elements() != 1 || m.Fixed(0) != 0 || m.Scale() != 0 || m.NextScale() != wire.ScaleFor(1, 4) {
		t.Fatalf("asks with %+v", m.Fields())
	}
	result := answer(m)
	result[35] = 0xec // -20
	w.Handle(0, result)
	m = poll(t, w, 0)
	if m.Elements() != 2 || m.Round() != 1 || m.Scale() != -20 || m.Fixed(0) != 1<<20 ||
		m.Fixed(1) != -1<<19 || m.NextScale() != wire.ScaleFor(100, 4) {
		t.Fatalf("sends %+v, % x", m.Fields(), m.Data())
	}
	result = answer(m, 1<<22, -1<<21)
	result[35] = 0xf0 // -16
	w.Handle(0, result)
	m = poll(t, w, 0)
	if m.Scale() != -16 || m.Fixed(0) != 100<<16 || m.Elements() != 1 || m.NextScale() != math.MinInt8 {
		t.Fatalf("sends %+v", m.Fields())
	}
	w.Handle(0, answer(m, 400<<16))
	if !w.Done() || data[0] != 4 || data[1] != -2 || data[2] != 400 {
		t.Errorf("sums %v", data)
	}
}

// TestNewRefuses what is no worker.
func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"nobody":         {FanIn: 0, Slots: 1, Elements: 1},
		"beyond":         {Worker: 2, FanIn: 2, Slots: 1, Elements: 1},
		"65":             {FanIn: 65, Slots: 1, Elements: 1},
		"no slots":       {FanIn: 1, Elements: 1},
		"no elements":    {FanIn: 1, Slots: 1},
		"a negative one": {Worker: -1, FanIn: 1, Slots: 1, Elements: 1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzHandle: no input makes a worker panic, or accept a message without its key.
func FuzzHandle(f *testing.F) {
	w := newWorker(f, 2, 2)
	w.Int32(0, []int32{1, 2, 3})
	f.Add([]byte(answer(poll(f, w, 0), 4, 5)), true)
	f.Fuzz(func(t *testing.T, message []byte, keyed bool) {
		w := newWorker(t, 2, 2)
		data := []int32{1, 2, 3}
		w.Int32(0, data)
		update := poll(t, w, 0)
		if len(message) >= 16 {
			copy(message[12:16], update[12:16])
			if !keyed {
				message[12] ^= 1
			}
		}
		w.Handle(1, message)
		if !keyed && (w.Err() != nil || w.Counters().Results != 0 || data[0] != 1) {
			t.Fatalf("taken in without the key: %v", data)
		}
		for w.Poll(2) != nil {
		}
	})
}
