package ranks

import (
	"testing"

	"railbed/internal/wire"
)

// TestUpdates holds that elements count once, whoever repeats them, and anew in a new epoch.
func TestUpdates(t *testing.T) {
	message := func(kind wire.AggregationKind, epoch, slot uint16, round uint32,
		elements uint16) wire.Aggregation {
		a := wire.Aggregation(make([]byte,
			wire.AggregationMessageLen(wire.AggregationFloat32, int(elements))))
		a.Encode(&wire.AggregationFields{Kind: kind, Type: wire.AggregationFloat32, Epoch: epoch, Slot: slot,
			Round: round, Elements: elements, FanIn: 2, Bitmap: 1})
		return a[:wire.AggregationLen] // what a capture has at least
	}
	halves := func(a wire.Aggregation) wire.Aggregation {
		f := a.Fields()
		f.Type, f.Op = wire.AggregationFloat16, wire.AggregationMin
		a.Encode(&f)
		return a
	}
	var u updates
	for _, m := range []struct {
		a               wire.Aggregation
		fresh, repeated uint64
	}{
		{message(wire.AggregationUpdate, 1, 0, 0, 10), 40, 0},
		{message(wire.AggregationUpdate, 1, 1, 0, 10), 80, 0},
		{message(wire.AggregationUpdate, 1, 0, 0, 10), 80, 40},
		{message(wire.AggregationUpdate, 1, 0, 1, 5), 100, 40},
		{message(wire.AggregationUpdate, 1, 0, 0, 10), 100, 80},
		{message(wire.AggregationResult, 1, 0, 2, 10), 100, 80},
		{message(wire.AggregationUpdate, 2, 0, 0, 10), 140, 80},
		{halves(message(wire.AggregationUpdate, 2, 0, 1, 10)), 160, 80},
	} {
		if u.add(m.a); u.fresh != m.fresh || u.repeated != m.repeated {
			t.Errorf("%d bytes, %d again, want %d and %d", u.fresh, u.repeated, m.fresh, m.repeated)
		}
	}
}
