package softswitch

import (
	"bytes"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// FuzzPipeline passes an engine any frames that a node may send. The engine never panics, its
// counters add up, and it delivers no frame longer than the MTU.
func FuzzPipeline(f *testing.F) {
	plans := []*plan.Plan{}
	texts := []string{
		single(3, "  switch: {kind: soft, int: true, aggregation: {slots: 2, elements: 20}, pfc: "+
			"{priorities: [3]}, ecn: {kmin: 1KB, kmax: 2KB, pmax: 100%}, trim: {size: 64B, priorities: [1, "+
			"2]}}\n  links: {default: {rate: 1gbit}}\n"),
		single(3, "  switch: {kind: soft, forwarding: l2, gfc: {kind: buffer, priorities: [3]}}\n  links: "+
			"{default: {rate: 1gbit, corrupt: 10%, duplicate: 10%}}\n"),
	}
	for _, text := range texts {
		plans = append(plans, plantest.Compile(f, text))
	}
	r := newRig(f, single(3, "  switch: {kind: soft}\n"))
	good := r.frame(make([]byte, 200), flow{from: 0, to: 1}, 200)
	f.Add(uint8(0), good, []byte{1, 2, 3})
	f.Add(uint8(1), good[:20], good)
	probe := bytes.Clone(good)
	wire.UDP(probe[34:]).SetDstPort(wire.PortINT)
	wire.INT(probe[42:]).Encode(&wire.INTFields{Hops: 1, Instructions: 0xffff, NextPort: wire.PortINT})
	f.Add(uint8(0), probe, probe)
	// An update that counts: the plan's address, worker and key.
	workers := newAggregated(f, texts[0], "leaf1")
	workers.workers[0].Int32(0, make([]int32, 20))
	update := workers.message(make([]byte, 200), 0, workers.workers[0].Poll(0))
	f.Add(uint8(0), update, update)
	if err := workers.workers[1].Combine(0, element.Float16, element.Max, make([]byte, 40)); err != nil {
		f.Fatal(err)
	}
	update = workers.message(make([]byte, 200), 1, workers.workers[1].Poll(0))
	f.Add(uint8(0), update, update)
	f.Fuzz(func(t *testing.T, which uint8, first, second []byte) {
		p := plans[int(which)%len(plans)]
		var e *Engine
		longest := p.Links[0].MTU + 18
		deliver := func(_ int, one *packet.Packet) {
			if len(one.Data) > longest {
				t.Errorf("delivered %d bytes, the longest frame has %d", len(one.Data), longest)
			}
			e.Pool().Put(one)
		}
		e, err := New(p, Options{Deliver: deliver, Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for i, data := range [][]byte{first, second, first, second} {
			one := e.Pool().Get()
			one.Data = one.Data[:copy(one.Data, data)]
			e.Receive(i%e.NICs(), one, clock.Time(i*100))
		}
		e.Advance(clock.Time(time.Second))
		totals := e.Totals()
		if in, out := totals.Received+totals.Made,
			totals.Delivered+totals.Consumed+totals.Dropped+uint64(e.Held()); in != out {
			t.Errorf("%d packets came into being and %d are accounted for: %+v", in, out, totals)
		}
	})
}
