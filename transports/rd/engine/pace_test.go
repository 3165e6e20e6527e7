package engine

import (
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/rate"
)

// TestRatesOfPeers checks that sending to a peer is never more than a packet ahead of that peer's
// rate, whatever the others' rates are and however low it is. No time is lost, and late packets are
// counted.
func TestRatesOfPeers(t *testing.T) {
	rates := []uint64{1_000_000, 7_777_777, 100_000_000, 400_000_000, 2_000_000_000}
	w := newWorld(t, 1)
	const nic = 10_000_000_000
	fixed := make([]rate.Fixed, len(rates))
	a := w.node(func(c *Config) {
		c.Pacer = NewPacer(nic)
		c.Control = func(to transports.Peer) rate.Controller { return &fixed[to] }
	})
	began, bits := make(map[*testNode]clock.Time), make(map[*testNode]uint64)
	all, first := uint64(0), clock.Time(0)
	w.fate = func(from, to *testNode, data wire.RD, _ int) fate {
		if from == a && data.Type() == wire.RDData {
			n := 0
			for w.nodes[n+1] != to {
				n++
			}
			if bits[to] == 0 {
				began[to] = w.now
			}
			if all == 0 {
				first = w.now
			}
			exact := time.Duration(float64(bits[to]) / float64(rates[n]) * 1e9)
			if w.now < began[to].Add(exact) {
				t.Fatalf("%d bit/s: a packet at %v, due at %v", rates[n], w.now, began[to].Add(exact))
			}
			if w.now < first.Add(time.Duration(all*1e9/nic)) {
				t.Fatalf("all together: a packet at %v, ahead of the NIC", w.now)
			}
			bits[to] += uint64(len(data)+a.config.Overhead) * 8
			all += uint64(len(data)+a.config.Overhead) * 8
		}
		return fate{delay: w.net.delay}
	}
	var keys []uint64
	for n, r := range rates {
		fixed[n].Rate = r
		b := w.node()
		a.add(b)
		b.add(a)
		_, key := b.region(1 << 16)
		keys = append(keys, key)
	}
	for n := range rates {
		local := make([]byte, 1<<16)
		for range 100 {
			a.post(transports.Peer(n), Message{Op: transports.OpWriteImm, Local: local, Key: keys[n]})
		}
	}
	const during = 20 * time.Millisecond
	w.runFor(during)
	for n, r := range rates {
		if got, want := bits[w.nodes[n+1]], uint64(float64(r)*during.Seconds()); got < want*99/100 {
			t.Errorf("%d bit/s: %d bits in %v, want %d", r, got, during, want)
		}
	}
	if p := a.Counters().Pace; p.Packets != a.Counters().Sent || p.Most > 20*time.Microsecond ||
		p.Quantile(500) > 4*time.Microsecond {
		t.Errorf("of %d packets: %+v", a.Counters().Sent, p)
	}
}

// TestLateness checks that a sender stopped for 3 ms is late by that time, catches up, and counts
// it. Lateness beyond the limit is not caught up, and idle time saves nothing up for a peer.
func TestLateness(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair(func(c *Config) {
		c.Control = func(transports.Peer) rate.Controller { return &rate.Fixed{Rate: 200_000_000} }
	})
	_, key := b.region(1 << 20)
	sent := 0
	w.saw = func(from, _ *testNode, data wire.RD) {
		if from == a && data.Type() == wire.RDData {
			sent++
		}
	}
	local := make([]byte, 1<<20)
	post := func() { a.post(0, Message{Op: transports.OpWriteImm, Local: local, Key: key}) }
	post()
	w.runFor(time.Millisecond)
	stop := func(d time.Duration) int {
		a.dead = true
		w.runFor(d)
		a.dead = false
		before := sent
		a.drive()
		return sent - before
	}
	// A packet of 512 bytes of payload takes 24.7 us.
	if n := stop(3 * time.Millisecond); n < 120 || n > 123 {
		t.Errorf("%d packets at once after 3 ms", n)
	}
	if p := a.Counters().Pace; p.Most < 2900*time.Microsecond || p.Most > 3*time.Millisecond {
		t.Errorf("late by %v", p.Most)
	}
	w.runFor(time.Second)
	before := sent
	post()
	if n := sent - before; n != 1 || len(a.completed) != 1 {
		t.Errorf("%d packets at once after a second without any, %d messages done", n, len(a.completed))
	}
}

// held is a controller that allows nothing before a moment, and then windows.
type held struct {
	rate.Line
	from   clock.Time
	window int
}

func (h *held) Allowed(clock.Time) rate.Allowance {
	return rate.Allowance{From: h.from, Window: h.window}
}

// TestControllersHold holds that nothing goes before the controller says, that no
// more is in flight than its window, and that a window below a packet lets one go.
func TestControllersHold(t *testing.T) {
	for _, window := range []int{1, 512, 2000, 5120} {
		w := newWorld(t, uint64(window))
		h := &held{window: window}
		a, b := w.pair(func(c *Config) { c.Control = func(transports.Peer) rate.Controller { return h } })
		h.from = a.clock().Add(time.Millisecond)
		_, key := b.region(1 << 20)
		first := clock.Time(0)
		w.saw = func(from, _ *testNode, data wire.RD) {
			if from != a || data.Type() != wire.RDData {
				return
			}
			if first == 0 {
				first = w.now
			}
			if under := a.peers[0].out.under; under > max(window, 512) {
				t.Fatalf("%d bytes in flight, the window is %d", under, window)
			}
		}
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 1<<16), Key: key})
		w.runFor(time.Second)
		if first < clock.Time(time.Millisecond) || first > clock.Time(time.Millisecond+10) ||
			len(a.completed) != 1 {
			t.Errorf("window %d: the first packet at %v, %d messages done", window, first, len(a.completed))
		}
	}
}
