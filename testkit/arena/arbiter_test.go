package arena

import (
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/transports/rd/rate"
	"railbed/transports/rd/rate/arbiter"
)

// arbitrate makes the hosts of an arena ask an arbiter, which is a link's delay away
// on either side, for slots of so many packets.
func arbitrate(o *Options, packets int) (start func(*World)) {
	slots := map[[2]int]*rate.Slots{}
	var world *World
	size := packets * defaultPayload
	var a *arbiter.Allocator
	o.Control = func(from, to int) rate.Controller {
		s := &rate.Slots{}
		s.Want = func(bytes int) {
			world.At(world.Now().Add(o.Delay*2), func() { a.Want(from, to, bytes) })
		}
		slots[[2]int{from, to}] = s
		return s
	}
	return func(w *World) {
		world, a = w, arbiter.NewAllocator(o.Hosts, size)
		each := w.serialise(packets * (defaultPayload + 64 + frame))
		var tick func()
		tick = func() {
			from := world.Now().Add(4 * o.Delay)
			for _, g := range a.Allocate(nil) {
				world.At(world.Now().Add(2*o.Delay), func() {
					slots[[2]int{g.From, g.To}].Grant(from, g.Bytes)
					world.Hosts[g.From].Wake()
				})
			}
			world.At(world.Now().Add(each), tick)
		}
		world.At(world.Now(), tick)
	}
}

// allToAll is a shift all-to-all: each host sends to the next ones in turn, four at
// once, as messages of different sizes end. It returns how long it takes, and the
// most hosts that sent to one within the time of a message.
func allToAll(o Options, begin func(*World)) (took time.Duration, w *World, fanIn int) {
	w = new(o)
	if begin != nil {
		begin(w)
	}
	left := o.Hosts * (o.Hosts - 1)
	last := make(map[[2]int]clock.Time)
	w.Sent = func(now clock.Time, from, to, _ int) {
		last[[2]int{from, to}] = now
		count := 0
		for n := range o.Hosts {
			if at, sent := last[[2]int{n, to}]; sent && now.Sub(at) < w.serialise(4*4200) {
				count++
			}
		}
		fanIn = max(fanIn, count)
	}
	for n, h := range w.Hosts {
		shift := 0
		var next func()
		next = func() {
			if shift++; shift < o.Hosts {
				to := (n + shift) % o.Hosts
				h.Post(to, 40_000+(n*7919+to*104729)%60_000, func() {
					if left--; left == 0 {
						took = w.Now().Sub(0)
					}
					next()
				})
			}
		}
		for range 4 {
			next()
		}
	}
	for range 200 {
		if w.Run(time.Millisecond); left == 0 {
			break
		}
	}
	return took, w, fanIn
}

// TestArbiter checks the arbiter's purpose in an all-to-all without a plan. No port ever queues
// more than the few packets of a slot, and nothing is sent twice. At line rate buffers overflow.
// The arbiter costs little time.
func TestArbiter(t *testing.T) {
	for seed := range uint64(3) {
		o := testOptions(seed, true)
		o.Hosts, o.MarkFrom, o.MarkAll = 16, 0, 0
		deepest := func(w *World) (most int, full uint64) {
			for _, h := range w.Hosts {
				most, full = max(most, h.Port.Deepest), full+h.Port.Full
			}
			return most, full
		}
		took, w, fan := allToAll(o, nil)
		most, full := deepest(w)
		begin := arbitrate(&o, 2)
		tookArbiter, wArbiter, fanArbiter := allToAll(o, begin)
		mostArbiter, fullArbiter := deepest(wArbiter)
		t.Logf("seed %d: line rate %v, %d bytes, %d trimmed, fan-in %d; arbiter %v, %d bytes, %d trimmed, "+
			"fan-in %d", seed, took, most, full, fan, tookArbiter, mostArbiter, fullArbiter, fanArbiter)
		if took == 0 || full == 0 || fan < 3 {
			t.Errorf("seed %d: at line rate nothing is congested", seed)
		}
		if tookArbiter == 0 || fullArbiter > 0 || mostArbiter > 2*4202 || tookArbiter > took {
			t.Errorf("seed %d: arbiter: %v, %d bytes, %d trimmed", seed, tookArbiter, mostArbiter,
				fullArbiter)
		}
	}
}
