package path

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// road is a path of a simulated fabric.
type road struct {
	roundTrip time.Duration
	loss      float64 // of packets of either direction
	mark      float64
	down      func(clock.Time) bool // nil: never
}

// happening is an event in a simulation.
type happening struct {
	path  int
	sent  clock.Time
	kind  int
	event Event
	back  int // the path of the acknowledgement
}

const (
	reported = iota // the sender learns of the event
	missing         // it looks again whether the packet is lost
	answered        // an acknowledgement comes by, unless the path is down
)

// simulation is a sender that paces packets over roads in virtual time. It learns
// of losses as a transport does: from acknowledgements of later packets, a round
// trip after the packet at the earliest, or from a timer of four.
type simulation struct {
	chooser Chooser
	roads   []road
	gap     time.Duration // between packets
	limit   time.Duration // the round trip that is slow for the slowest road
	chance  *rand.Rand
	now     clock.Time
	send    clock.Time // when the next packet goes
	agenda  clock.Queue[happening]
	acked   clock.Time // the latest send time of an acknowledged packet

	picks    []int
	last     []clock.Time // when each path was picked last
	evidence []clock.Time // when each path was first reported lost or timed out after watch
	watch    clock.Time
	lost     []int
	onPick   func(path int)
	excluded []int
}

func simulate(t testing.TB, kind Kind, roads []road, gap time.Duration, seed uint64, o Options) *simulation {
	t.Helper()
	o.Seed = seed
	chooser, err := New(kind, len(roads), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{
		chooser:  chooser,
		roads:    roads,
		gap:      gap,
		chance:   rand.New(rand.NewPCG(seed, 99)),
		acked:    before,
		watch:    clock.Never,
		picks:    make([]int, len(roads)),
		last:     make([]clock.Time, len(roads)),
		evidence: make([]clock.Time, len(roads)),
		lost:     make([]int, len(roads)), excluded: make([]int, len(roads)),
	}
	for p, r := range roads {
		s.limit = max(s.limit, r.roundTrip+r.roundTrip/10)
		s.evidence[p] = clock.Never
	}
	chooser.Paths().SetRoundTrip(s.limit)
	return s
}

// passes says that a packet that goes now gets there and, of a probe, back.
func (s *simulation) passes(p int, bothWays bool) bool {
	r := &s.roads[p]
	lost := s.chance.Float64() < r.loss
	if bothWays {
		lost = s.chance.Float64() < r.loss || lost
		lost = lost || r.down != nil && r.down(s.now.Add(r.roundTrip*3/4))
	}
	return !lost && !(r.down != nil && r.down(s.now.Add(r.roundTrip/4)))
}

func (s *simulation) data() {
	p := s.chooser.Pick(s.now)
	if s.onPick != nil {
		s.onPick(p)
	}
	s.picks[p]++
	s.last[p] = s.now
	s.send = s.now.Add(s.gap)
	if !s.passes(p, false) {
		s.lost[p]++
		s.agenda.Push(s.now.Add(s.limit), happening{path: p, sent: s.now, kind: missing})
		return
	}
	event := Acked
	if s.chance.Float64() < s.roads[p].mark {
		event = Marked
	}
	s.agenda.Push(s.now.Add(s.roads[p].roundTrip*3/4),
		happening{path: p, sent: s.now, event: event, kind: answered, back: p})
}

func (s *simulation) probes() {
	for range 4 * len(s.roads) {
		p, ok := s.chooser.Probe(s.now)
		if !ok {
			return
		}
		if s.passes(p, true) {
			s.agenda.Push(s.now.Add(s.roads[p].roundTrip),
				happening{path: p, sent: s.now, event: ProbeReturned})
		}
	}
	panic("Probe has no end")
}

func (s *simulation) happen(h happening) {
	if h.kind == answered {
		if r := &s.roads[h.back]; r.down != nil && r.down(s.now) {
			// The next acknowledgement that comes says it too.
			h.back = s.chance.IntN(len(s.roads))
			s.agenda.Push(s.now.Add(10*us), h)
		} else {
			h.kind = reported
			s.agenda.Push(s.now.Add(r.roundTrip/4), h)
		}
		return
	}
	if h.kind == missing {
		switch {
		case s.acked > h.sent:
			h.event = Lost
		case s.now >= h.sent.Add(4*s.limit):
			h.event = TimedOut
		default:
			s.agenda.Push(s.now.Add(s.limit/4), h)
			return
		}
		if h.sent >= s.watch {
			s.evidence[h.path] = min(s.evidence[h.path], s.now)
		}
	} else if h.event != ProbeReturned {
		s.acked = max(s.acked, h.sent)
	}
	s.chooser.Feedback(Report{Path: h.path, Event: h.event, Sent: h.sent}, s.now)
}

// run goes on until a moment.
func (s *simulation) run(until clock.Time) {
	paths := s.chooser.Paths()
	for {
		next := min(s.send, s.chooser.NextProbe(), s.agenda.Next())
		if next > until {
			s.now = until
			return
		}
		s.now = max(s.now, next)
		bad := paths.Counters().Excluded
		switch {
		case s.agenda.Next() <= s.now:
			_, h := s.agenda.Pop()
			s.happen(h)
		case s.send <= s.now:
			s.data()
		}
		s.probes()
		if paths.Counters().Excluded != bad {
			for p := range s.roads {
				if paths.State(p) == Bad && paths.paths[p].since == s.now {
					s.excluded[p]++
				}
			}
		}
	}
}

// total is the sum of counts.
func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// alike are n roads of one round trip.
func alike(n int, roundTrip time.Duration) []road {
	roads := make([]road, n)
	for p := range roads {
		roads[p].roundTrip = roundTrip
	}
	return roads
}

// unlike are n roads whose round trips go from one to twice that.
func unlike(n int, roundTrip time.Duration) []road {
	roads := alike(n, roundTrip)
	for p := range roads {
		roads[p].roundTrip += roundTrip * time.Duration(p) / time.Duration(n)
	}
	return roads
}

// between says that a moment lies between two.
func between(from, to clock.Time) func(clock.Time) bool {
	return func(t clock.Time) bool { return t >= from && t < to }
}

func at(d time.Duration) clock.Time { return clock.Time(d) }
