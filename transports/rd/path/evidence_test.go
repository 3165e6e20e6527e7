package path

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
)

func everyKind(t *testing.T, f func(t *testing.T, kind Kind)) {
	for k := range kindNames {
		t.Run(kindNames[k], func(t *testing.T) { f(t, Kind(k)) })
	}
}

// A black hole is abandoned within two round trips of the first evidence, for every chooser and
// load, also when it takes half of the paths. It is probed, and used again after its repair.
func TestBlackHoleIsLeftAndTriedAgain(t *testing.T) {
	const hole, repair = clock.Time(5 * ms), clock.Time(60 * ms)
	everyKind(t, func(t *testing.T, kind Kind) {
		for _, c := range []struct {
			paths, dead int
			gap         time.Duration
		}{{8, 1, 2 * us}, {8, 4, 10 * us}, {64, 1, 5 * us}, {64, 32, 5 * us}, {64, 1, 40 * us},
			{2, 1, 10 * us}} {
			name := fmt.Sprintf("%d of %d dead, a packet each %v", c.dead, c.paths, c.gap)
			for seed := range uint64(2) {
				roads := unlike(c.paths, 100*us)
				s := simulate(t, kind, roads, c.gap, seed, Options{ProbeMax: 10 * ms})
				s.run(hole - 1)
				// The pinned one's own path is among the dead.
				dead := []int{s.chooser.Pick(s.now)}
				for p := 0; len(dead) < c.dead; p += 2 {
					if p != dead[0] && p^1 != dead[0]^1 {
						dead = append(dead, p)
					} else if p != dead[0] {
						dead = append(dead, (dead[0]+c.paths/2|1)%c.paths)
					}
				}
				for _, p := range dead {
					s.roads[p].down = between(hole, repair)
				}
				s.watch = hole
				s.run(hole + at(10*ms))
				for _, p := range dead {
					if s.evidence[p] == clock.Never {
						continue // the chooser did not use it
					}
					if late := s.last[p].Sub(s.evidence[p]); late > 2*s.limit {
						t.Errorf("%s, seed %d: path %d used %v after the first evidence, round trip %v", name,
							seed, p, late, s.limit)
					}
					if state := s.chooser.Paths().State(p); state != Bad {
						t.Errorf("%s, seed %d: dead path %d is %v", name, seed, p, state)
					}
				}
				for p := range s.roads {
					if s.roads[p].down == nil && s.excluded[p] != 0 {
						t.Errorf("%s, seed %d: path %d excluded, which is good", name, seed, p)
					}
				}
				used := make([]int, c.paths)
				copy(used, s.picks)
				bad := map[int]bool{}
				for _, p := range dead {
					bad[p] = s.chooser.Paths().State(p) == Bad
				}
				s.run(repair)
				for _, p := range dead {
					if bad[p] && s.picks[p] != used[p] {
						t.Errorf("%s, seed %d: dead path %d picked %d times", name, seed, p,
							s.picks[p]-used[p])
					}
				}
				// The longest interval, its jitter, and the round trip of the probe.
				s.run(repair + at(10*ms+10*ms/4+s.limit))
				for _, p := range dead {
					if state := s.chooser.Paths().State(p); state == Bad {
						t.Errorf("%s, seed %d: path %d is %v after its repair", name, seed, p, state)
					}
				}
				copy(used, s.picks)
				s.run(s.now + at(10*ms))
				if p := dead[0]; s.picks[p] == used[p] && kind != KindREPS && kind != KindMixed {
					t.Errorf("%s, seed %d: path %d is not used after its repair", name, seed, p)
				}
			}
		}
	})
}

// Random loss condemns nothing, on one path or on all, however many packets a
// round trip the path has.
func TestRandomLossCondemnsNoPath(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		for _, c := range []struct {
			name  string
			paths int
			gap   time.Duration
			all   bool
		}{
			{"one of 8, 12 packets each round trip", 8, us, false},
			{"all of 8, 12 packets each round trip", 8, us, true},
			{"all of 64, 1 packet in 3 round trips", 64, 5 * us, true},
			{"all of 2, 1 packet in 2 round trips", 2, 100 * us, true},
		} {
			roads := alike(c.paths, 100*us)
			for p := range roads {
				if c.all || p == 1 {
					roads[p].loss = 0.01
				}
			}
			s := simulate(t, kind, roads, c.gap, 7, Options{})
			s.run(at(c.gap * 60_000))
			if n := s.chooser.Paths().Counters().Excluded; n != 0 {
				t.Errorf("%s: excluded %d times in %d packets, %v lost", c.name, n, total(s.picks), s.lost)
			}
			if c.all && kind != KindPinned && total(s.lost) < 400 {
				t.Errorf("%s: only %d packets lost, this shows nothing", c.name, total(s.lost))
			}
		}
	})
}

// A peer that drops half of all packets, whatever their path, has no bad paths,
// as soon as the loss rate is known.
func TestLossOfThePeerCondemnsFewPaths(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		roads := alike(16, 100*us)
		for p := range roads {
			roads[p].loss = 0.5
		}
		s := simulate(t, kind, roads, 2*us, 3, Options{})
		s.run(at(4 * ms))
		early := s.chooser.Paths().Counters().Excluded
		s.run(at(200 * ms))
		if n := s.chooser.Paths().Counters().Excluded; n > early+2 {
			t.Errorf("excluded %d times while the rate was learnt, then %d times", early, n-early)
		}
	})
}

// Silence of all paths condemns none of them, neither while it lasts nor when it
// ends, and then all are used again.
func TestOutageOfAllPathsCondemnsNone(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		for _, n := range []int{1, 2, 8, 64} {
			for _, lasting := range []time.Duration{30 * us, 150 * us, 700 * us, 20 * ms} {
				for seed := range uint64(2) {
					roads := unlike(n, 100*us)
					for p := range roads {
						roads[p].down = between(at(2*ms), at(2*ms+lasting))
					}
					s := simulate(t, kind, roads, 4*us, seed, Options{ProbeMax: 10 * ms})
					s.run(at(2*ms + lasting + 15*ms))
					if c := s.chooser.Paths().Counters(); c.Excluded != 0 {
						t.Fatalf("%d paths, outage of %v, seed %d: excluded %d times", n, lasting, seed,
							c.Excluded)
					}
					for p := range roads {
						if state := s.chooser.Paths().State(p); state == Suspect {
							t.Fatalf("%d paths, outage of %v, seed %d: path %d is %v for ever", n, lasting,
								seed, p, state)
						}
					}
				}
			}
		}
	})
}

// The results for chosen fabrics hold for any fabric. Round trips differ by up to four times, loads
// and random loss vary, and there is an outage of everything, or of one path or many.
func TestAnyFabric(t *testing.T) {
	for seed := range uint64(600) {
		draw := rand.New(rand.NewPCG(seed, 1))
		kind, n := Kind(seed%6), []int{2, 3, 4, 8, 16, 32, 64}[draw.IntN(7)]
		roads := alike(n, 100*us)
		spread, loss := draw.Float64()*3, []float64{0, 0.01}[seed/6%2]
		for p := range roads {
			roads[p].roundTrip += time.Duration(draw.Float64() * spread * float64(100*us))
			roads[p].loss = loss
		}
		s := simulate(t, kind, roads, time.Duration(1+draw.IntN(60))*us, seed, Options{ProbeMax: 10 * ms})
		from := at(2 * ms)
		until := clock.Never
		s.run(from)
		dead := map[int]bool{s.chooser.Pick(from): true}
		outage := seed%5 == 0
		if outage {
			until = from.Add(time.Duration(10+draw.IntN(3000)) * us)
		}
		for p := range n {
			// At least two thirds live, or none.
			if outage || seed%5 > 2 && (len(dead)+1)*3 <= n && draw.IntN(3) == 0 {
				dead[p] = true
			}
		}
		for p := range dead {
			roads[p].down = between(from, until)
		}
		s.watch = from
		s.run(from + at(15*ms))
		where := fmt.Sprintf("seed %d: %v, %d of %d paths dead, a packet each %v, round trip %v, loss %v",
			seed, kind, len(dead), n, s.gap, s.limit, loss)
		for p := range roads {
			switch {
			case outage && s.excluded[p] != 0:
				t.Errorf("%s, all dead for %v: path %d excluded", where, until.Sub(from), p)
			case !dead[p] && s.excluded[p] != 0:
				t.Errorf("%s: path %d excluded, which is good", where, p)
			case !outage && dead[p] && s.evidence[p] != clock.Never &&
				s.last[p].Sub(s.evidence[p]) > 2*s.limit:
				t.Errorf("%s: path %d used %v after the first evidence", where, p,
					s.last[p].Sub(s.evidence[p]))
			}
		}
	}
}

// One path that is down for less than half a round trip is not excluded; one
// that flaps is used less and less.
func TestFlap(t *testing.T) {
	roads := alike(8, 100*us)
	roads[3].down = func(t clock.Time) bool { return t%at(2*ms) < at(45*us) }
	s := simulate(t, KindWeighted, roads, 2*us, 1, Options{})
	s.run(at(100 * ms))
	if s.excluded[3] != 0 || s.lost[3] < 50 {
		t.Errorf("short flaps: excluded %d times, %d packets lost", s.excluded[3], s.lost[3])
	}

	roads = alike(8, 100*us)
	roads[3].down = func(t clock.Time) bool { return t/at(2*ms)%2 == 1 }
	s = simulate(t, KindOblivious, roads, 2*us, 1, Options{})
	s.run(at(40 * ms))
	first := s.excluded[3]
	s.run(at(400 * ms))
	s.excluded[3] = 0
	s.run(at(440 * ms))
	if first < 3 || s.excluded[3] > first/2 {
		t.Errorf("flaps of 2 ms: excluded %d times in the first 40 ms, %d times in 40 ms later", first,
			s.excluded[3])
	}
}

// The formula at States: a path whose packets and probes are lost with a
// probability q condemns with it to the power of the losses that count.
func TestSurpriseIsTheLogarithm(t *testing.T) {
	for loss := uint32(leastLoss); loss <= 1<<16; loss += 7 {
		want := -math.Log2(float64(loss) / (1 << 16))
		if got := float64(surprise(loss)) / bit; got > want || got < want-0.1 {
			t.Fatalf("surprise of %d/65536 is %.4f bits, -log2 is %.4f", loss, got, want)
		}
	}
	for _, c := range []struct {
		loss uint32
		want int
	}{{0, 5}, {leastLoss, 5}, {1 << 15, 58}} {
		probe := surprise(max(bothWays(c.loss), leastLoss))
		if n := 1 + (enough-surprise(max(c.loss, leastLoss))+probe-1)/probe; n != c.want {
			t.Errorf("%d losses exclude at a rate of %d/65536, documented %d", n, c.loss, c.want)
		}
	}
	if surprise(1<<16) != 0 {
		t.Error("a loss where everything is lost is a surprise")
	}
}

// Paths that were excluded together are not probed together: intervals are longer by
// up to a quarter, at random.
func TestProbesAreSpread(t *testing.T) {
	s := newStatesFor(2)
	drawn := make(map[clock.Time]bool)
	for range 100 {
		when := s.later(at(ms), 80*us)
		if drawn[when] = true; when < at(ms+80*us) || when > at(ms+100*us) {
			t.Errorf("a probe at %v", time.Duration(when))
		}
	}
	if len(drawn) < 50 {
		t.Errorf("%d different times of 100", len(drawn))
	}
}

// newStatesFor are the states of n paths with a round trip of 80 us.
func newStatesFor(n int) *States {
	s := newStates(n, Options{RoundTrip: 80 * us}.withDefaults())
	return &s
}

// Each line of the rule of evidence alone.
func TestEvidence(t *testing.T) {
	type step struct {
		path  int
		event Event
		sent  time.Duration // in us
		now   time.Duration
	}
	lost := func(path int, sent ...time.Duration) (steps []step) {
		for _, at := range sent {
			steps = append(steps, step{path, Lost, at, at + 100})
		}
		return steps
	}
	others := func(sent ...time.Duration) (steps []step) {
		for _, at := range sent {
			steps = append(steps, step{1, Acked, at, at + 90})
		}
		return steps
	}
	join := func(parts ...[]step) (all []step) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  State
	}{
		{"one loss", lost(0, 10), Suspect},
		{"a loss behind which a packet came through", join([]step{{0, Acked, 20, 100}}, lost(0, 10)), Good},
		{"a loss, then a later packet comes through", join(lost(0, 10), []step{{0, Acked, 20, 120}}), Good},
		{"a loss, then an earlier packet comes through", join(lost(0, 10), []step{{0, Acked, 5, 120}}),
			Suspect},
		{"the lost packet was late", join(lost(0, 10), []step{{0, Acked, 10, 120}}), Good},
		{"a loss, then something comes through, when it was sent is not known",
			join(lost(0, 10), []step{{0, Acked, 0, 120}}), Suspect},
		{"a loss of a packet that was sent nobody knows when",
			join([]step{{0, Acked, 5, 95}}, []step{{0, Lost, 0, 120}}), Good},
		{"trimmed is passed", join(lost(0, 10), []step{{0, TrimmedLastHop, 20, 120}}), Good},
		{"five losses, others answer", join(others(15, 25, 35, 45), lost(0, 10, 20, 30, 40, 50)), Bad},
		{"four losses, others answer", join(others(15, 25, 35, 45), lost(0, 10, 20, 30, 40)), Suspect},
		{"losses, nobody answers", lost(0, 10, 20, 30, 40, 50, 60, 70, 80, 90), Suspect},
		{"losses, others answered before", join(others(1, 5, 9), lost(0, 10, 20, 30, 40, 50, 60, 70, 80, 90)),
			Suspect},
		{"losses, others answer what was sent after them",
			join(others(70, 80, 90, 100), lost(0, 10, 20, 30, 40, 50, 60)), Suspect},
		{"losses, others answer before and after them",
			join(others(9, 110), lost(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)), Suspect},
		{"five losses in one burst", join(others(10, 14, 18), lost(0, 10, 12, 14, 16, 18)), Suspect},
		{"a burst and four losses", join(others(15, 25, 35, 45), lost(0, 10, 12, 14, 20, 30, 40, 50)), Bad},
		{"denied", lost(2, 10), Denied},
	} {
		s := newStatesFor(3)
		s.Deny(2)
		for _, step := range c.steps {
			s.Feedback(Report{Path: step.path, Event: step.event, Sent: at(step.sent * us)}, at(step.now*us))
		}
		if got := s.State(c.steps[len(c.steps)-1].path); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A suspect is probed at once, six times an eighth of a round trip apart, then
// at doubling intervals; a bad path after one round trip, then at doubling ones.
// With nothing sent elsewhere other paths are probed beside it.
func TestProbesAreAtTheirTimes(t *testing.T) {
	s := newStatesFor(3)
	type probe struct {
		path int
		at   time.Duration
	}
	collect := func(from, to time.Duration) (got []probe) {
		for now := at(from); now <= at(to); now = max(now, s.NextProbe()) {
			for p, ok := s.Probe(now); ok; p, ok = s.Probe(now) {
				got = append(got, probe{p, time.Duration(now)})
			}
			if s.NextProbe() == clock.Never {
				break
			}
		}
		return got
	}
	if got := collect(0, time.Second); got != nil {
		t.Fatalf("probes of good paths: %v", got)
	}
	s.take(0, at(10*us))
	s.Feedback(Report{Path: 0, Event: Lost, Sent: at(10 * us)}, at(100*us))
	want := []probe{
		{0, 100 * us}, {2, 100 * us}, {1, 100 * us}, {0, 110 * us}, {2, 110 * us}, {1, 110 * us},
		{0, 120 * us}, {2, 120 * us}, {1, 120 * us},
		{0, 130 * us}, {2, 130 * us}, {1, 130 * us}, {0, 140 * us}, {2, 140 * us}, {1, 140 * us},
		{0, 150 * us}, {2, 150 * us}, {1, 150 * us},
		{0, 170 * us}, {2, 170 * us}, {1, 170 * us},
	}
	if got := collect(100*us, 190*us); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("probes of a suspect:\n%v, want\n%v", got, want)
	}
	// Paths 1 and 2 answer, so it was path 0: its four first probes count when each
	// had 100 us.
	for i, sent := range []time.Duration{100, 110, 120, 130} {
		s.Feedback(Report{Path: 1 + i%2, Event: ProbeReturned, Sent: at(sent * us)}, at(195*us))
	}
	for _, c := range []struct {
		now  time.Duration
		want State
	}{{200 * us, Suspect}, {210 * us, Suspect}, {220 * us, Suspect}, {229 * us, Suspect}, {230 * us, Bad}} {
		s.settle(at(c.now))
		if got := s.State(0); got != c.want {
			t.Errorf("at %v: %v, want %v", c.now, got, c.want)
		}
	}
	after := 230 * us
	for i, p := range collect(after, 2*time.Second) {
		interval := min(80*us<<i, 100*ms)
		if p.path != 0 || p.at-after < interval || p.at-after > interval+interval/4 {
			t.Errorf("probe %d of path %d comes %v after the one before, want %v and a quarter at most", i,
				p.path, p.at-after, interval)
		}
		after = p.at
	}
	if after < time.Second {
		t.Errorf("last probe at %v", after)
	}
	s.Feedback(Report{Path: 0, Event: ProbeReturned, Sent: at(after)}, at(after+80*us))
	if got := s.State(0); got != Good {
		t.Errorf("answered: %v", got)
	}
}
