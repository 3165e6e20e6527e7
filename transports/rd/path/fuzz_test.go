package path

import (
	"testing"
	"time"

	"railbed/internal/clock"
)

// FuzzFeedback does anything to a chooser. It must give paths that exist and are
// allowed, bad ones only when nothing else is left, always leave one, and have
// an end of probes.
func FuzzFeedback(f *testing.F) {
	f.Add(byte(0), byte(8), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(byte(2), byte(1), []byte{9, 0, 4, 200, 9, 0, 4, 220, 0, 0, 0, 0})
	for kind := range kindNames {
		script := []byte{}
		for i := range 200 {
			script = append(script, byte(i%7), byte(i%5), byte(i*37), byte(i*11))
		}
		f.Add(byte(kind), byte(5), script)
	}
	f.Fuzz(func(t *testing.T, kind, n byte, script []byte) {
		paths := int(n) + 1
		c, err := New(Kind(int(kind)%len(kindNames)), paths,
			Options{Seed: uint64(n), RoundTrip: 50 * us, ProbeMax: ms})
		if err != nil {
			t.Fatal(err)
		}
		now := clock.Time(0)
		for ; len(script) >= 4; script = script[4:] {
			p := int(script[1]) - 2 // some do not exist
			switch op := script[0] % 16; op {
			case 12:
				c.Paths().Deny(p)
			case 13:
				c.Paths().Allow(p)
			case 14:
				c.Paths().SetRoundTrip(time.Duration(script[2]) << (script[3] % 60))
			case 15:
				now += clock.Time(script[2]) << (script[3] % 40)
			default:
				now = now.Add(time.Duration(script[3]) * us)
				sent := now.Add(-time.Duration(int8(script[2])) * 2 * us)
				c.Feedback(Report{Path: p, Event: Event(op % 9), Packets: int(script[3]) - 3, Sent: sent},
					now)
			}
			hold(t, c, now, paths)
		}
	})
}

func hold(t *testing.T, c Chooser, now clock.Time, paths int) {
	s := c.Paths()
	usable := 0
	for p := range paths {
		if state := s.State(p); state != Bad && state != Denied {
			usable++
		}
	}
	if usable != s.Usable() {
		t.Fatalf("%d usable, Usable says %d", usable, s.Usable())
	}
	for p, ok := c.Probe(now); ok; p, ok = c.Probe(now) {
		if p < 0 || p >= paths || s.State(p) == Denied {
			t.Fatalf("probe of path %d, %v", p, s.State(p))
		}
		if s.counters.Probes > 1<<20 {
			t.Fatal("probes without end")
		}
	}
	if c.NextProbe() <= now {
		t.Fatalf("at %v the next probe is at %v, and Probe had nothing", now, c.NextProbe())
	}
	p := c.Pick(now)
	if p < 0 || p >= paths || s.State(p) == Denied || s.State(p) == Bad && s.Usable() > 0 {
		t.Fatalf("pick of path %d, %v, of %d with %d usable", p, s.State(p), paths, s.Usable())
	}
}
