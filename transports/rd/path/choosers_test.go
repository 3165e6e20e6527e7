package path

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"railbed/internal/clock"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func chooser(t testing.TB, kind Kind, n int, o Options) Chooser {
	t.Helper()
	c, err := New(kind, n, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// evenly complains when counts are too far from equal for chance: chi-square
// beyond 6 deviations (Wilson and Hilferty's approximation).
func evenly(t *testing.T, what string, counts []int) {
	t.Helper()
	sum, want := 0.0, float64(total(counts))/float64(len(counts))
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	df := float64(len(counts) - 1)
	if z := (math.Cbrt(sum/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df)); z > 6 {
		t.Errorf("%s: not even by %.1f deviations: %v", what, z, counts)
	}
}

// Turns are exactly fair: each path has one in each rotation, also when some are
// bad or denied.
func TestTurnsAreFair(t *testing.T) {
	for _, kind := range []Kind{KindOblivious, KindBitmap, KindMixed, KindWeighted} {
		for _, n := range []int{2, 3, 8, 63, 64, 200, 256} {
			c := chooser(t, kind, n, Options{Seed: uint64(n)})
			usable := n
			for p := 0; p < n/3; p++ {
				c.Paths().Deny(2 * p)
				usable--
			}
			counts := make([]int, n)
			for range 20 * usable {
				counts[c.Pick(0)]++
			}
			for p, got := range counts {
				want := 20
				if c.Paths().State(p) == Denied {
					want = 0
				}
				if got != want {
					t.Fatalf("%v, %d of %d paths: path %d has %d of 20 turns", kind, usable, n, p, got)
				}
			}
		}
	}
}

// What is drawn is even: over picks, over keys and over near seeds, so that
// senders of one seed each do not start alike.
func TestDrawsAreEven(t *testing.T) {
	const n, draws = 24, 24_000
	counts := make([]int, n)
	reps := chooser(t, KindREPS, n, Options{})
	for range draws {
		counts[reps.Pick(0)]++
	}
	evenly(t, "REPS without acknowledgements", counts)

	clear(counts)
	pinned := chooser(t, KindPinned, n, Options{}).(*pinned)
	for key := range uint64(draws) {
		counts[pinned.PickFor(key, 0)]++
	}
	evenly(t, "keys", counts)

	everyKind(t, func(t *testing.T, kind Kind) {
		counts := make([]int, n)
		for seed := range uint64(draws / 10) {
			counts[chooser(t, kind, n, Options{Seed: seed}).Pick(0)]++
		}
		evenly(t, "first picks", counts)
	})
}

// A marked path, or a path that trimmed, sits out one rotation of Oblivious. It sits out none if
// marks are ignored, or if the last hop trimmed.
func TestMarkSkipsARotation(t *testing.T) {
	const n = 16
	for _, c := range []struct {
		event  Event
		ignore bool
		want   bool
	}{{Marked, false, true}, {Trimmed, false, true}, {TrimmedLastHop, false, false}, {Acked, false, false},
		{Marked, true, false}} {
		o := chooser(t, KindOblivious, n, Options{Seed: 3, IgnoreMarks: c.ignore})
		for range 5 {
			o.Pick(0)
		}
		o.Feedback(Report{Path: 7, Event: c.event, Sent: 0}, 0)
		if got := o.Paths().State(7) == Skip; got != c.want {
			t.Errorf("%v, ignored %v: state %v", c.event, c.ignore, o.Paths().State(7))
		}
		counts := make([]int, n)
		for range n {
			counts[o.Pick(0)]++
		}
		if c.want && counts[7] != 0 {
			t.Errorf("%v: picked in the rotation it was to sit out", c.event)
		}
		for range 2 * n {
			counts[o.Pick(0)]++
		}
		if counts[7] == 0 {
			t.Errorf("%v: not picked after it sat out", c.event)
		}
	}
	// When all sit out, none does, and turns stay fair.
	o := chooser(t, KindOblivious, n, Options{Seed: 3})
	counts := make([]int, n)
	for range 64 * n {
		p := o.Pick(0)
		counts[p]++
		for p := range n {
			o.Feedback(Report{Path: p, Event: Marked}, 0)
		}
	}
	if slices.Min(counts) < 60 || slices.Max(counts) > 68 {
		t.Errorf("all marked always: %v", counts)
	}
}

// Bitmap's penalties are 1, 4 and 15 turns, as in uet-htsim.
func TestBitmapPenalties(t *testing.T) {
	const n = 8
	for _, c := range []struct {
		event   Event
		packets int
		want    int
	}{{Marked, 1, 1}, {Marked, 3, 3}, {Trimmed, 1, 4}, {TrimmedLastHop, 1, 0}, {Lost, 1, 4},
		{TimedOut, 1, 15}, {Trimmed, 9, 15}, {Acked, 1, 0}} {
		b := chooser(t, KindBitmap, n, Options{})
		b.Feedback(Report{Path: 2, Event: c.event, Packets: c.packets, Sent: 0}, 0)
		counts := make([]int, n)
		for counts[2] == 0 && b.Paths().Counters().Picks < 1000 {
			counts[b.Pick(0)]++
		}
		// Each of the others had a turn in each rotation, and one more at most.
		for p, got := range counts {
			if p != 2 && (got < c.want || got > c.want+2) {
				t.Errorf("%v x %d: path %d had %d turns before path 2 had one, want %d", c.event, c.packets,
					p, got, c.want)
			}
		}
	}
	// A pick reduces only the first penalty that it meets. With all 8 paths at 15 it takes 15 x 8
	// picks until a path is free of penalty.
	b := chooser(t, KindBitmap, n, Options{}).(*Bitmap)
	for p := range n {
		b.Feedback(Report{Path: p, Event: TimedOut}, 0)
	}
	for range 100 {
		b.Pick(0)
	}
	left := 0
	for p := range n {
		left += int(b.penalty[p])
	}
	if left != 15*n-100 {
		t.Errorf("penalties of %d left after 100 picks, want %d", left, 15*n-100)
	}
}

func acked(c Chooser, now clock.Time, paths ...int) {
	for _, p := range paths {
		c.Feedback(Report{Path: p, Event: Acked, Sent: now}, now)
	}
}

func picks(c Chooser, now clock.Time, n int) (got []int) {
	for range n {
		got = append(got, c.Pick(now))
	}
	return got
}

func TestREPSRecyclesAndFreezes(t *testing.T) {
	// So many paths that no draw is taken for an entropy of the ring by chance,
	// but with one seed in a hundred.
	c := chooser(t, KindREPS, 256, Options{Seed: 5}).(*reps)
	fresh := func(what string, got []int) {
		t.Helper()
		for _, p := range got {
			if p < 16 {
				t.Errorf("%s: picks %v, want paths drawn anew", what, got)
				return
			}
		}
	}
	want := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: picks %v, want %v", what, got, want)
		}
	}
	fresh("empty", picks(c, 0, 4))
	acked(c, 1, 1, 2, 3)
	c.Feedback(Report{Path: 4, Event: Marked, Sent: 1}, 1)
	c.Feedback(Report{Path: 5, Event: Trimmed, Sent: 1}, 1)
	c.Feedback(Report{Path: 6, Event: TrimmedLastHop, Sent: 1}, 1)
	c.Feedback(Report{Path: 7, Event: Acked, Packets: 2, Sent: 1}, 1)
	want("recycled", picks(c, 1, 6), 1, 2, 3, 6, 7, 7)
	fresh("used up", picks(c, 1, 3))
	acked(c, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	want("a ring of 8", picks(c, 2, 8), 2, 3, 4, 5, 6, 7, 8, 9)
	acked(c, 3, 10, 11)
	c.Paths().Deny(10)
	want("a denied one", picks(c, 3, 1), 11)

	// Entries before the freeze are good again and again, used up or not.
	now := clock.Time(1000)
	c.Feedback(Report{Path: 12, Event: TimedOut, Sent: now}, now)
	if !c.Frozen() {
		t.Fatal("not frozen by a timeout")
	}
	got := picks(c, now, 14)
	slices.Sort(got[:7])
	want("frozen", got[:7], 4, 5, 6, 7, 8, 9, 11)
	slices.Sort(got[7:])
	want("frozen, again", got[7:], 4, 5, 6, 7, 8, 9, 11)
	thaw := now.Add(10 * ms)
	if c.Pick(thaw); !c.Frozen() {
		t.Error("thawed too early")
	}
	acked(c, thaw, 13)
	acked(c, thaw+1, 14)
	if c.Frozen() {
		t.Error("frozen for more than 10 ms")
	}
	c.Feedback(Report{Path: 12, Event: TimedOut, Sent: thaw + 1}, thaw+1)
	fresh("exploring", picks(c, thaw+1, 16))
	want("explored: what came since", picks(c, thaw+1, 1), 14)
}

// A path that became bad freezes REPS too.
func TestBadPathFreezesREPS(t *testing.T) {
	roads := alike(16, 100*us)
	s := simulate(t, KindREPS, roads, 2*us, 1, Options{})
	s.run(at(2 * ms))
	dead := s.chooser.Pick(s.now)
	s.roads[dead].down = between(s.now, clock.Never)
	s.run(s.now + at(2*ms))
	if s.excluded[dead] == 0 {
		t.Fatal("the dead path is not bad, this shows nothing")
	}
	if !s.chooser.(*reps).Frozen() {
		t.Error("not frozen")
	}
}

// Mixed takes what was acknowledged, else a turn without penalty.
func TestMixed(t *testing.T) {
	c := chooser(t, KindMixed, 4, Options{Seed: 1})
	acked(c, 1, 3, 3, 1)
	if got := picks(c, 1, 3); !slices.Equal(got, []int{3, 3, 1}) {
		t.Errorf("picks %v, want the acknowledged 3, 3, 1", got)
	}
	c.Feedback(Report{Path: 2, Event: TimedOut, Sent: 2}, 2)
	if got := picks(c, 2, 12); slices.Contains(got, 2) {
		t.Errorf("picks %v, want none of the path that timed out", got)
	}
}

// A key stays on its path whatever is marked and lost, leaves it when it is bad
// or denied, and comes back; other keys stay where they are.
func TestPinnedStays(t *testing.T) {
	const n, keys = 16, 1000
	c := chooser(t, KindPinned, n, Options{Seed: 9}).(*pinned)
	home := make([]int, keys)
	for key := range home {
		home[key] = c.PickFor(uint64(key), 0)
	}
	for p := range n {
		for _, e := range []Event{Marked, Trimmed, Lost, Marked} {
			c.Feedback(Report{Path: p, Event: e, Sent: 1}, 1)
		}
	}
	elsewhere := make([]int, n)
	for i, c1 := range []func(){func() {}, func() { c.Deny(4) }, func() { c.Allow(4) }} {
		c1()
		for key, p := range home {
			got := c.PickFor(uint64(key), 2)
			switch {
			case i == 1 && p == 4:
				elsewhere[got]++
			case got != p:
				t.Fatalf("step %d: key %d went from path %d to %d", i, key, p, got)
			}
		}
	}
	if elsewhere[4] != 0 || total(elsewhere) < 30 {
		t.Errorf("keys of the denied path: %v", elsewhere)
	}
	evenly(t, "keys of the denied path", append(elsewhere[:4:4], elsewhere[5:]...))
}

// Shares are right to less than one pick at every moment.
func TestWeightedShares(t *testing.T) {
	draw := rand.New(rand.NewPCG(4, 4))
	check := func(c *weighted, weights []uint32, picks int) {
		t.Helper()
		sum := uint64(0)
		for p, w := range weights {
			if c.Paths().State(p) != Denied {
				sum += uint64(w)
			}
		}
		counts := make([]uint64, len(weights))
		for i := uint64(1); i <= uint64(picks); i++ {
			counts[c.Pick(0)]++
			for p, n := range counts {
				weight := uint64(weights[p])
				if c.Paths().State(p) == Denied {
					weight = 0
				}
				if share := i * weight; n*sum >= share+sum || share >= n*sum+sum {
					t.Fatalf("weights %v: path %d has %d of %d picks", weights, p, n, i)
				}
			}
		}
	}
	for range 60 {
		weights := make([]uint32, 2+draw.IntN(40))
		for p := range weights {
			weights[p] = 1 + draw.Uint32N(1<<draw.UintN(17))
		}
		c := chooser(t, KindWeighted, len(weights),
			Options{Weights: weights, Seed: draw.Uint64()}).(*weighted)
		check(c, weights, 1500)
		c.Deny(draw.IntN(len(weights)))
		check(c, weights, 500)
		for p := range weights {
			weights[p] = draw.Uint32N(4)
		}
		weights[0], weights[1] = 1, 2
		if err := c.SetWeights(weights); err != nil {
			t.Fatal(err)
		}
		check(c, weights, 500)
	}
	// Spares are used when nothing else is left.
	c := chooser(t, KindWeighted, 4, Options{Weights: []uint32{0, 3, 0, 0}})
	if got := picks(c, 0, 3); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("picks %v, want the one with weight", got)
	}
	c.Paths().Deny(1)
	got := picks(c, 0, 6)
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 0, 2, 2, 3, 3}) {
		t.Errorf("picks %v, want the spares alike", got)
	}
}

// A denied path is not used; the last allowed one stays; when all that is
// allowed is bad, it is used in the order in which it was found bad.
func TestDeniedAndAllBad(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		c := chooser(t, kind, 3, Options{RoundTrip: 80 * us})
		s := c.Paths()
		if s.Deny(3) || s.Deny(-1) || !s.Deny(2) || !s.Deny(2) {
			t.Error("denied a path that does not exist, or not one that does")
		}
		s.paths[0].state, s.paths[1].state = Suspect, Suspect
		s.exclude(1, at(1000*us))
		s.exclude(0, at(2000*us))
		if s.Usable() != 0 {
			t.Fatalf("%d usable", s.Usable())
		}
		if got := picks(c, at(2001*us), 2); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("picks %v, want 1, which is bad for longest", got)
		}
		c.Feedback(Report{Path: 1, Event: Lost, Sent: at(2001 * us)}, at(2100*us))
		if got := c.Pick(at(2101 * us)); got != 0 {
			t.Errorf("pick %d after a loss, want 0", got)
		}
		if !s.Deny(0) || s.Deny(1) {
			t.Error("the last path could be denied, or the last but one could not")
		}
		if got := c.Pick(at(2102 * us)); got != 1 {
			t.Errorf("pick %d, want the only one that is allowed", got)
		}
		c.Feedback(Report{Path: 1, Event: Acked, Sent: at(2102 * us)}, at(2200*us))
		s.Allow(0)
		if s.State(0) != Good || s.State(1) != Good || s.Usable() != 2 {
			t.Errorf("states %v, %v, want both good", s.State(0), s.State(1))
		}
	})
}

// The same seed gives the same picks and probes, another one others.
func TestSameSeedSamePicks(t *testing.T) {
	everyKind(t, func(t *testing.T, kind Kind) {
		var runs []string
		for _, seed := range []uint64{1, 1, 2} {
			roads := unlike(16, 100*us)
			for p := range roads {
				roads[p].loss, roads[p].mark = 0.01, 0.05
			}
			roads[3].down, roads[0].down = between(at(ms), at(3*ms)), between(at(ms), at(4*ms))
			s := simulate(t, kind, roads, 2*us, 7, Options{})
			c := chooser(t, kind, 16, Options{Seed: seed})
			c.Paths().SetRoundTrip(s.limit)
			s.chooser = c
			var run strings.Builder
			s.onPick = func(p int) { fmt.Fprint(&run, p, " ") }
			s.run(at(6 * ms))
			fmt.Fprintf(&run, "%+v", c.Paths().Counters())
			runs = append(runs, run.String())
		}
		if runs[0] != runs[1] {
			t.Error("two runs of one seed differ")
		}
		if runs[0] == runs[2] {
			t.Error("runs of two seeds are the same")
		}
	})
}

func TestNamesAndOptions(t *testing.T) {
	for i, name := range Names() {
		if kind, err := Parse(name); err != nil || kind != Kind(i) || kind.String() != name {
			t.Errorf("Parse(%q) = %v, %v", name, kind, err)
		}
	}
	if _, err := Parse("ecmp"); err == nil || !strings.Contains(err.Error(), `"ecmp"`) ||
		!strings.Contains(err.Error(), "reps") {
		t.Errorf("Parse(ecmp): %v", err)
	}
	for _, c := range []struct {
		n    int
		o    Options
		want []string
	}{
		{0, Options{}, []string{"0 paths"}},
		{257, Options{Ring: -1}, []string{"257 paths", "ring of -1"}},
		{2, Options{RoundTrip: -1, ProbeMax: -1, Freeze: -1, Explore: -1},
			[]string{"round trip", "between probes", "freeze", "explore"}},
		{2, Options{Weights: []uint32{1}}, []string{"1 weights"}},
		{2, Options{Weights: []uint32{0, 0}}, []string{"all weights are 0"}},
		{2, Options{Weights: []uint32{maxWeight + 1, 0}}, []string{"weight 65537 of path 0"}},
	} {
		_, err := New(KindWeighted, c.n, c.o)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New(%d, %+v): %v, want %q in it", c.n, c.o, err, want)
			}
		}
	}
	if _, err := New(Kind(99), 2, Options{}); err == nil {
		t.Error("made a chooser of kind 99")
	}
}
