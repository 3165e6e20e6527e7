package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
)

// TestReorderingRepeatsNothing checks that packets which only overtake each other are never sent
// twice. Until the first packet has arrived over the slowest path, its delay is unknown: packets
// sent over it before may be sent twice.
func TestReorderingRepeatsNothing(t *testing.T) {
	for name, delay := range map[string]func(w *world, path int) time.Duration{
		"each packet otherwise": func(w *world, _ int) time.Duration {
			return 5*time.Microsecond + time.Duration(w.random.Int64N(int64(100*time.Microsecond)))
		},
		"a path ten times as long": func(_ *world, by int) time.Duration {
			return map[bool]time.Duration{false: 20 * time.Microsecond, true: 200 * time.Microsecond}[by == 5]
		},
		"a queue that grows and shrinks": func(w *world, by int) time.Duration {
			d := 20 * time.Microsecond
			if by == 1 { // by half a microsecond each, up to half a millisecond
				at := time.Duration(w.now) % (2 * time.Millisecond)
				d += min(at, 2*time.Millisecond-at) / 2
			}
			return d
		},
	} {
		for _, rate := range []uint64{0, 5_000_000_000} {
			t.Run(fmt.Sprintf("%s at %d", name, rate), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 1)
				w.fate = func(_, _ *testNode, _ wire.RD, by int) fate { return fate{delay: delay(w, by)} }
				a, b := w.pair(func(c *Config) {
					c.Paths = func() path.Chooser {
						chooser, err := path.New(path.KindOblivious, 64, path.Options{Seed: 1})
						if err != nil {
							t.Error(err)
						}
						return chooser
					}
					if rate > 0 {
						c.Pacer = NewPacer(rate)
					}
				})
				_, key := b.region(1 << 16)
				a.sends(0, key, 1<<16, 3, 3)
				w.runFor(time.Second)
				start := a.Counters()
				if start.Repeated > 200 {
					t.Errorf("the start cost %d packets", start.Repeated)
				}
				a.sends(0, key, 1<<16, 800, 4)
				w.runFor(time.Minute)
				if c := a.Counters(); c.Sent < start.Sent+100_000 || c.Repeated != start.Repeated ||
					len(b.received) != 803 {
					t.Errorf("%d messages; first %+v, then %+v", len(b.received), start, c)
				}
				if testing.Short() || strings.Contains(name, "queue") {
					return // who sends nothing does not see it grow
				}
				a.sends(0, key, 8192, 4000, 1) // 16 packets every 20 ms
				send := a.onDone
				a.onDone = func(c transports.Completion) {
					w.at(w.now.Add(20*time.Millisecond), func() { send(c) })
				}
				w.runFor(10 * time.Minute)
				if c := a.Counters(); c.Repeated != start.Repeated || len(b.received) != 4803 {
					t.Errorf("few at a time: %d messages; first %+v, then %+v", len(b.received), start, c)
				}
			})
		}
	}
}

// passage is when packets of a pair went.
type passage struct {
	sent map[uint32][]clock.Time // data by PSN
	acks []clock.Time            // at which they came
}

// watch records the data and acknowledgements that are sent, and lets decide choose the fate of
// data packets. If decide is nil, the network's random faults apply.
func (w *world) watch(a *testNode, decide func(psn uint32, n int) fate) *passage {
	g := &passage{sent: make(map[uint32][]clock.Time)}
	w.fate = func(from, _ *testNode, b wire.RD, _ int) fate {
		f := w.chances()
		switch base := b.Base(); {
		case from == a && base.Type == wire.RDData:
			at := base.PSN - uint32(firstPSN(a.life))
			g.sent[at] = append(g.sent[at], w.now)
			d := decide(at, len(g.sent[at]))
			d.delay += f.delay
			return d
		case from != a && base.Type == wire.RDAck:
			g.acks = append(g.acks, w.now.Add(f.delay))
		}
		return f
	}
	return g
}

// TestTrimmedIsSentAgain holds that a packet of which only the header came is sent
// again as soon as its sender can know, however often that happens to it.
func TestTrimmedIsSentAgain(t *testing.T) {
	for _, psn := range []uint32{0, 5, 99} {
		for trims := 1; trims <= 3; trims++ {
			w := newWorld(t, 1)
			a, b := w.pair()
			g := w.watch(a, func(at uint32, n int) fate { return fate{trim: at == psn && n <= trims} })
			_, key := b.region(51_200)
			a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 51_200), Key: key})
			w.runFor(time.Second)
			sent := g.sent[psn]
			if len(sent) != trims+1 || a.Counters().Probes != 0 || len(b.received) != 1 {
				t.Fatalf("packet %d was sent at %v, with %d probes", psn, sent, a.Counters().Probes)
			}
			for i := range trims {
				if took := sent[i+1].Sub(sent[i]); took != 2*w.net.delay {
					t.Errorf("packet %d was sent again after %v, trimmed %d times", psn, took, i+1)
				}
			}
		}
	}
}

// TestTrimmedTellsNoTime holds that an acknowledgement of nothing but headers is
// not taken for a measurement: the clocks have nothing to do with each other.
func TestTrimmedTellsNoTime(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		a, b := w.pair()
		// where both look like times of one clock
		a.skew, b.skew = time.Second+a.skew%time.Second, b.skew%time.Second
		w.watch(a, func(_ uint32, n int) fate { return fate{trim: n <= 2*ackEvery} })
		_, key := b.region(512)
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
		w.runFor(time.Second)
		if late := a.peers[0].out.late; late.longest[0] != 2*w.net.delay || len(b.received) != 1 {
			t.Fatalf("seed %d: a round trip of %v in %v", seed, late.longest[0], 2*w.net.delay)
		}
	}
}

// TestLostInTraffic holds that a packet lost among others is sent again when it is
// as late as the document says.
func TestLostInTraffic(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair(func(c *Config) { c.Pacer = NewPacer(1_000_000_000) })
	gap := time.Duration(512+wire.RDDataLen+a.config.Overhead) * 8
	g := w.watch(a, func(at uint32, n int) fate { return fate{lost: at%1000 == 500 && n == 1} })
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 100, 4)
	w.run(clock.Time(time.Minute))
	lost := 0
	for psn, sent := range g.sent {
		if len(sent) == 1 {
			continue
		}
		lost++
		// arrivals took a round trip, and a retransmission no longer
		bound := (2*w.net.delay)*5/4 + slack
		known := 2*w.net.delay + ackEvery*gap
		if again := sent[1].Sub(sent[0]); psn%1000 != 500 || len(sent) != 2 || again < bound ||
			again > max(bound, known)+2*gap {
			t.Errorf("packet %d was sent again after %v; bound %v, known after %v", psn, again, bound, known)
		}
	}
	if c := a.Counters(); lost < 12 || a.peers[0].out.probed != 0 || c.Repeated != uint64(lost) ||
		len(b.received) != 100 {
		t.Errorf("%d lost, %+v", lost, c)
	}
}

// TestTooSoon holds that a bound which was too small grows by a quarter of the
// longest round trip, up to three of it, and comes back.
func TestTooSoon(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair(func(c *Config) { c.Pacer = NewPacer(1_000_000_000) })
	g := w.watch(a, func(at uint32, n int) (f fate) {
		if at%1000 == 500 && n == 1 && at < 20_000 {
			f.delay = 400 * time.Microsecond
		}
		return f
	})
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 10, 4) // 1,280 packets
	w.runFor(time.Second)
	late := &a.peers[0].out.late
	if c := a.Counters(); c.Repeated != 1 || b.Counters().Duplicates != 1 || late.margin != 2 ||
		len(g.sent[500]) != 2 {
		t.Errorf("margin of %d quarters; %+v", late.margin, c)
	}
	for range 20 {
		late.spurious()
	}
	if want := 4*max(late.longest[0], late.longest[1]) + slack; late.margin != mostMargin ||
		late.bound() != want {
		t.Errorf("margin of %d quarters, bound %v, want %v", late.margin, late.bound(), want)
	}
	at := a.clock()
	for began := late.periods; late.periods < began+(mostMargin-1)*forgive; at = at.Add(
		leastPeriod / leastSamples) {
		late.trip(20*time.Microsecond, at)
	}
	if late.margin != 1 {
		t.Errorf("margin of %d quarters after %d periods", late.margin, late.periods)
	}
}

// TestTailLoss holds that a packet lost behind all others is repaired by a probe
// after the time that the document says, at every try.
func TestTailLoss(t *testing.T) {
	const last = 9
	for tries := 1; tries <= 3; tries++ {
		w := newWorld(t, 1)
		a, b := w.pair()
		_, key := b.region(51_200)
		// teaches the round trip
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 51_200), Key: key})
		w.runFor(time.Second)
		const first = 100
		g := w.watch(a, func(at uint32, n int) fate { return fate{lost: at == first+last && n <= tries} })
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, (last+1)*512), Key: key})
		w.runFor(time.Second)
		sent := g.sent[first+last]
		if len(sent) != tries+1 || len(b.received) != 2 {
			t.Fatalf("sent at %v", sent)
		}
		for i := 1; i < len(sent); i++ {
			heard := sent[i-1] // or when the last answer came since
			for _, at := range g.acks {
				if at < sent[i] {
					heard = max(heard, at)
				}
			}
			if took := sent[i].Sub(heard); took != leastProbe+endDelay+2*w.net.delay {
				t.Errorf("try %d: sent again %v after the last sign", i, took)
			}
		}
	}
}

// TestLostAcknowledgements holds that acknowledgements that are lost cost nothing
// to be sent again.
func TestLostAcknowledgements(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	w.fate = func(from, _ *testNode, _ wire.RD, _ int) fate {
		return fate{delay: 10 * time.Microsecond, lost: from == b && w.chance(0.5)}
	}
	_, key := b.region(20_000)
	a.sends(0, key, 20_000, 1000, 3)
	w.run(clock.Time(time.Minute))
	if c := a.Counters(); c.Repeated != 0 || len(b.received) != 1000 || len(a.completed) != 1000 {
		t.Errorf("%d received, %d completed: %+v", len(b.received), len(a.completed), c)
	}
}
