package engine

import (
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/path"
)

// TestDeadPath holds that data leaves a path of 8 that swallows everything within
// two round trips of the first evidence, with every chooser, and comes back after
// it heals.
func TestDeadPath(t *testing.T) {
	for kind, name := range path.Names() {
		for seed := range uint64(3) {
			w := newWorld(t, seed)
			dead, before := -1, -1 // before is where data went until then
			var died, evidence, healed, back clock.Time
			var trip time.Duration
			into, lost := 0, make(map[uint32]bool)
			var a *testNode
			w.fate = func(from, _ *testNode, p wire.RD, by int) fate {
				f := fate{delay: 10*time.Microsecond + time.Duration(w.random.Int64N(5000))}
				if from != a || by < 0 {
					return f
				}
				f.lost = by == dead
				base := p.Base()
				if evidence != 0 { // as reported to the choosers
					late := &a.peers[0].out.late
					trip = max(trip, late.smooth+4*late.vary)
				}
				switch {
				case base.Type != wire.RDData:
				case base.Flags&wire.RDRepeat != 0 && lost[base.PSN] && evidence == 0:
					evidence = w.now
				case by == dead:
					if lost[base.PSN] = true; evidence != 0 &&
						w.now > evidence.Add(2*trip+5*time.Microsecond) {
						// the time between two packets
						into++
					}
				case by == before && healed != 0 && back == 0:
					back = w.now
				}
				if dead < 0 && base.Type == wire.RDData && healed == 0 {
					before = by
				}
				return f
			}
			a = w.node(func(c *Config) {
				c.Paths = func() path.Chooser {
					chooser, err := path.New(path.Kind(kind), 8, path.Options{Seed: seed})
					if err != nil {
						t.Fatal(err)
					}
					return chooser
				}
				c.Pacer = NewPacer(1_000_000_000)
			})
			b := w.node()
			a.add(b)
			b.add(a)
			_, key := b.region(1 << 16)
			a.sends(0, key, 1<<16, 200, 3)
			w.runFor(20 * time.Millisecond)
			dead, died = before, w.now
			w.runFor(30 * time.Millisecond)
			dead, healed = -1, w.now
			w.runFor(60 * time.Millisecond) // probes are 30 ms and a quarter from each other at most
			if path.Kind(kind) == path.KindPinned && a.peers[0].out.paths.Paths().State(before) == path.Good {
				back = healed // it is free to stay where it went
			}
			soon := 500 * time.Microsecond
			if path.Kind(kind) == path.KindPinned {
				soon = 6 * leastProbe // all is on that path, the first probes too
			}
			if evidence == 0 || evidence.Sub(died) > soon || into > 0 || back == 0 || len(a.failed) > 0 {
				t.Errorf("%s, seed %d: died at %v, evidence at %v (round trip %v), then %d packets into "+
					"it; healed at %v, used at %v; %v",
					name, seed, died, evidence, trip, into, healed, back, a.failed)
			}
			w.runFor(10 * time.Second)
			if len(b.received) != 200 {
				t.Errorf("%s, seed %d: %d received", name, seed, len(b.received))
			}
		}
	}
}
