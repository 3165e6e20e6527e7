package path

import (
	"testing"

	"railbed/internal/clock"
)

// toil is the work for a packet. It is a pick, an acknowledgement of a packet picked a window ago,
// with a mark or a loss now and then, and the probes.
type toil struct {
	c       Chooser
	now     clock.Time
	i       int
	flight  [64]int
	trouble bool
	dead    int // by turns
}

func (w *toil) packet() {
	w.i++
	w.now += 1000
	slot := &w.flight[w.i%len(w.flight)]
	r := Report{Path: *slot, Event: Acked, Packets: 1, Sent: w.now - 64_000}
	if w.trouble {
		switch {
		case r.Path == w.dead && w.i/50_000%2 == 1:
			r.Event = Lost
		case w.i%20 == 0:
			r.Event = Marked
		case w.i%101 == 0:
			r.Event = Lost
		}
	}
	w.c.Feedback(r, w.now)
	for p, ok := w.c.Probe(w.now); ok; p, ok = w.c.Probe(w.now) {
		if p != w.dead || w.i/50_000%2 == 0 {
			w.c.Feedback(Report{Path: p, Event: ProbeReturned, Sent: w.now}, w.now)
		}
	}
	*slot = w.c.Pick(w.now)
}

func newToil(tb testing.TB, kind Kind, n int, trouble bool) *toil {
	w := &toil{c: chooser(tb, kind, n, Options{RoundTrip: 64 * us, ProbeMax: 5 * ms}), trouble: trouble}
	for i := range w.flight {
		w.flight[i] = w.c.Pick(0)
	}
	w.dead = w.flight[0]
	return w
}

// Nothing is allocated, in calm or in trouble.
func TestNothingIsAllocated(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		w := newToil(t, kind, 8, true)
		if n := testing.AllocsPerRun(120_000, w.packet); n != 0 {
			t.Errorf("%v allocations a packet", n)
		}
		if c := w.c.Paths().Counters(); c.Excluded == 0 || c.Probes == 0 ||
			kind != KindREPS && kind != KindMixed && c.Returned == 0 {
			t.Errorf("too little trouble: %+v", c)
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	for kind, name := range kindNames {
		for _, n := range []struct {
			name    string
			paths   int
			trouble bool
		}{{"8", 8, false}, {"64", 64, false}, {"256", 256, false}, {"64-trouble", 64, true}} {
			b.Run(name+"/"+n.name, func(b *testing.B) {
				w := newToil(b, Kind(kind), n.paths, n.trouble)
				b.ReportAllocs()
				for b.Loop() {
					w.packet()
				}
			})
		}
	}
}
