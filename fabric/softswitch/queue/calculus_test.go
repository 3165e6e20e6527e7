package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/testkit/calculustest"
)

// TestPaceKeepsItsCurve: a priority that Gentle Flow Control slows to a rate r sends in no interval
// more than r*t and a packet. This is a token bucket of one packet (Cruz 1991). It holds for stages
// (buffer-based) and for shares of the line (time-based), also if other priorities keep the line
// busy.
//
// Without other priorities the slowed one is a server of the rate r. Of a source of (b, r) at most
// b waits, and no packet waits longer than b/r. See Le Boudec and Thiran, theorems 1.4.1 and 1.4.2.
// A greedy source reaches these bounds.
//
// Beside other priorities it is slower than r, because time that the line could not give is not
// made up for.
func TestPaceKeepsItsCurve(t *testing.T) {
	const line, most, burst = units.Rate(1e9), 1514.0, 30e3
	for name, c := range map[string]struct {
		slow func(p *Port)
		rate float64 // bit/s
	}{
		"stage 1": {func(p *Port) { p.Stage(0, 3, 1) }, 500e6},
		"stage 5": {func(p *Port) { p.Stage(0, 3, 5) }, 31.25e6},
		"share":   {func(p *Port) { p.Share(0, 3, FullRate/7) }, 1e9 * float64(FullRate/7) / FullRate},
		"limit":   {func(p *Port) { p.Limit(0, 3, 123_456_789) }, 123_456_789},
	} {
		for _, others := range []bool{false, true} {
			s := &simulation{}
			p := NewNIC(1 << 30)
			p.SetLink(0, plan.Direction{Rate: line})
			c.slow(p)
			l := &carrier{s: s, port: p, rate: line, sent: map[*packet.Packet]clock.Time{},
				came: map[*packet.Packet]clock.Time{}}
			rate := c.rate / 8
			var slow []*packet.Packet
			arrivals := calculustest.Source(rand.New(rand.NewPCG(1, 2)), burst, rate, 2000, 64, 700, 1514)
			for _, a := range arrivals {
				slow = append(slow, l.offer(a.At, a.Bytes, 3))
			}
			for at := clock.Time(0); others && at < arrivals[len(arrivals)-1].At; at += 30_000 {
				l.offer(at, most, 0)
			}
			s.run(clock.Time(time.Hour))

			var out calculustest.Trace
			delay := time.Duration(0)
			for _, one := range slow {
				out.Add(l.sent[one], int64(len(one.Data)))
				delay = max(delay, l.sent[one].Sub(l.came[one])) // until its first bit leaves
			}
			// Times are whole nanoseconds.
			if got := out.Burst(rate); got > most+rate/1e9 || got < most-1 {
				t.Errorf("%s, others %t: %v bytes at once and %v bytes/s left, want a packet at once", name,
					others, got, rate)
			}
			bound, packet := time.Duration(burst/rate*1e9), time.Duration(most/rate*1e9)
			switch {
			case others:
				if out.Len() != len(slow) || l.most < burst {
					t.Errorf("%s: %d of %d packets left, %d bytes waited", name, out.Len(), len(slow), l.most)
				}
			case delay > bound || delay < bound-2*packet:
				t.Errorf("%s: a packet waited %v, want at most %v, and about so much", name, delay, bound)
			case l.most > burst || float64(l.most) < burst-2*most:
				t.Errorf("%s: %d bytes waited, want at most %v, and about so much", name, l.most, burst)
			}
		}
	}
}

// carrier is a line that records when each packet left.
type carrier struct {
	s    *simulation
	port *Port
	rate units.Rate
	busy bool
	most int64 // that waited at priority 3
	next []clock.Time

	came, sent map[*packet.Packet]clock.Time
}

// offer has a packet come at a time.
func (l *carrier) offer(at clock.Time, length int, priority uint8) *packet.Packet {
	one := frameOf(length, priority)
	l.s.in(time.Duration(at), func() {
		l.came[one] = l.s.now
		l.port.Enqueue(l.s.now, one)
		l.kick()
	})
	return one
}

func (l *carrier) kick() {
	l.most = max(l.most, l.port.Depth(3))
	if l.busy {
		return
	}
	one := l.port.Dequeue(l.s.now)
	if one == nil {
		if next := l.port.Next(l.s.now); next != clock.Never && !slices.Contains(l.next, next) {
			l.next = append(l.next, next)
			l.s.in(next.Sub(l.s.now), func() {
				l.next = slices.DeleteFunc(l.next, func(at clock.Time) bool { return at == next })
				l.kick()
			})
		}
		return
	}
	l.busy = true
	l.sent[one] = l.s.now
	l.s.in(l.rate.SerialisationTime(units.Bytes(len(one.Data))), func() { l.busy = false; l.kick() })
}
