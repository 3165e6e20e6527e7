package live

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A quantile is never too low, and at most an eighth too high.
func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var l lateness
	var values []time.Duration
	for range 10000 {
		v := time.Duration(1) << random.IntN(36)
		v += time.Duration(random.Int64N(int64(v)))
		values = append(values, v)
		l.Add(v)
	}
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999} {
		exact, got := values[int(q*float64(len(values)))], l.Quantile(q)
		if got < exact || got > exact+exact/8 {
			t.Errorf("quantile %v: %v, want %v", q, got, exact)
		}
	}
	cumulative := l.Histogram().Counts
	for i, bound := range Bounds() {
		if below, _ := slices.BinarySearch(values, bound); uint64(below) != cumulative[i] {
			t.Errorf("%d values below %v, want %d", cumulative[i], bound, below)
		}
	}
	if l.Quantile(1) != values[len(values)-1] || l.Worst != l.Quantile(1) {
		t.Errorf("worst %v, want %v", l.Worst, values[len(values)-1])
	}
}

// newTestMonitor is one without a socket.
func newTestMonitor() *monitors {
	return &monitors{nics: make([]monitor, 2), waiting: newWaiting(waitingSlots)}
}

func TestArrivalsAreMatchedInOrder(t *testing.T) {
	w := newTestMonitor()
	release := func(nic int32, key uint64, at int64) { w.dues.push(due{key: key, at: at, nic: nic}) }
	release(0, 1, 1000)
	release(1, 1, 5000) // the same frame elsewhere
	release(0, 2, 2000) // lost on the way
	release(0, 3, 3000)
	release(0, 1, 4000) // the first one again, as a duplicate
	w.arrive(&w.nics[0], 1, 1010)
	w.arrive(&w.nics[0], 3, 3030)
	w.arrive(&w.nics[0], 1, 4040)
	w.arrive(&w.nics[1], 1, 5050)
	if w.all.Total != 4 || w.all.Sum != 10+30+40+50 || w.unmatched != 1 {
		t.Errorf("%d arrivals, late by %v together, %d unmatched; want 4, 130ns, 1", w.all.Total, w.all.Sum,
			w.unmatched)
	}
	w.arrive(&w.nics[1], 9, 6000) // never released
	if w.all.Total != 4 || w.unmatched != 2 {
		t.Errorf("an arrival without a release counted: %d, %d unmatched", w.all.Total, w.unmatched)
	}
}

// What never arrives is given up, and never hides what comes after it.
func TestReleasesThatNeverArrive(t *testing.T) {
	w := newTestMonitor()
	for i := range uint64(1000) {
		w.dues.push(due{key: i, at: int64(i)})
	}
	w.arrive(&w.nics[0], 999, 1100)
	if w.all.Total != 1 || w.unmatched != 999 {
		t.Errorf("%d arrivals, %d unmatched, want 1 and 999", w.all.Total, w.unmatched)
	}
	w.dues.push(due{key: 5, at: 5})
	w.drain()
	w.forget(&w.nics[0], time.Now().Add(-time.Hour).UnixNano())
	if w.nics[0].pending.count != 1 {
		t.Errorf("%d wait, want the one that was released just now, though late", w.nics[0].pending.count)
	}
	w.forget(&w.nics[0], time.Now().Add(time.Second).UnixNano())
	if w.unmatched != 1000 || w.nics[0].pending.count != 0 {
		t.Errorf("%d unmatched, %d wait, want 1000 and 0", w.unmatched, w.nics[0].pending.count)
	}
}

// What leaves in one burst after a stall is all known again when it arrives, the
// latest, which were due first, before all.
func TestArrivalsAfterAStall(t *testing.T) {
	w := newTestMonitor()
	stall, gap := 1200*time.Millisecond, 200*time.Microsecond
	frames := int(stall / gap)
	for i := range frames {
		w.dues.push(due{key: uint64(i), at: int64(i) * int64(gap)})
	}
	for i := range frames {
		w.arrive(&w.nics[0], uint64(i), int64(stall))
	}
	if w.all.Total != uint64(frames) || w.unmatched != 0 || w.all.Worst != stall {
		t.Errorf("%d of %d arrivals, %d unmatched, worst %v, want all and %v", w.all.Total, frames,
			w.unmatched, w.all.Worst, stall)
	}
	for i := range 3 * mostWaiting / 2 { // too many: the latest stay
		w.dues.push(due{key: uint64(i), at: int64(i)})
		w.drain()
	}
	before := w.all.Total
	for i := range 3 * mostWaiting / 2 {
		w.arrive(&w.nics[0], uint64(i), int64(stall))
	}
	if got := w.all.Total - before; got != mostWaiting || w.unmatched != mostWaiting {
		t.Errorf("%d arrivals known, %d unmatched, want the first %d and twice the rest", got, w.unmatched,
			mostWaiting)
	}
	if w.waiting.free == none || w.nics[0].pending.count != 0 {
		t.Error("slots are not given back")
	}
}

// The ring between the threads neither loses nor invents entries, and reports when it is full.
func TestDuesAcrossThreads(t *testing.T) {
	var d dues
	const count = 200_000
	var group sync.WaitGroup
	group.Go(func() {
		for i := range uint64(count) {
			d.push(due{key: i})
		}
	})
	got, last := uint64(0), int64(-1)
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for ended := false; ; {
		one, ok := d.pop()
		if ok {
			if int64(one.key) <= last {
				t.Fatalf("%d after %d", one.key, last)
			}
			got, last = got+1, int64(one.key)
			continue
		}
		if ended {
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	if got+d.full.Load() != count || got == 0 {
		t.Errorf("%d came through and %d found no room, of %d", got, d.full.Load(), count)
	}
}

func TestWindows(t *testing.T) {
	const unit = 100 * time.Microsecond
	began := time.Unix(1000, 0)
	w := &windows{}
	w.endIfDue(began, unit)
	second := func(i int) time.Time { return began.Add(time.Duration(i) * time.Second) }
	fill := func(at time.Time, frames, late int) {
		for i := range frames {
			by := 10 * time.Microsecond
			if i < late {
				by = 20 * time.Millisecond
			}
			w.add(by, at.UnixNano())
		}
	}
	fill(second(0), 1000, 0)
	w.endIfDue(second(1), unit)
	fill(second(1), 1000, 9) // 0.9 %: not the 99th percentile
	w.endIfDue(second(2), unit)
	fill(second(2), 1000, 11)
	w.endIfDue(second(3), unit)
	fill(second(3), 60, 0) // too few: the window goes on
	w.endIfDue(second(4), unit)
	fill(second(4), 60, 0)
	w.endIfDue(second(5), unit)
	var told Timing
	w.tell(&told, second(5))
	if told.Windows != 4 || told.Late != 1 || told.First == nil || !told.First.From.Equal(second(2)) ||
		told.First.P99 < 19*time.Millisecond {
		t.Errorf("%d windows, %d late, first %+v; want the third of four", told.Windows, told.Late,
			told.First)
	}
	if told.Worst == nil || !told.Worst.From.Equal(second(2)) {
		t.Errorf("worst %+v, want the third", told.Worst)
	}
}

// Few frames are better than none.
func TestOpenWindowStandsForTheWhole(t *testing.T) {
	w := &windows{}
	w.endIfDue(time.Unix(0, 0), time.Microsecond)
	w.add(time.Millisecond, 5)
	told := Timing{Unit: time.Microsecond}
	w.tell(&told, time.Unix(3, 0))
	if told.Windows != 1 || told.Late != 1 || told.First == nil || told.First.Frames != 1 ||
		told.First.WorstAt.UnixNano() != 5 {
		t.Errorf("%+v, want one late window", told)
	}
}

// The spin follows the lateness of wake-ups, and ends where the lateness is longer than spinning is
// worth.
func TestSpinFollowsTheKernel(t *testing.T) {
	settle := func(by func(i int) time.Duration) time.Duration {
		t := thread{spin: leastSpin}
		for i := range 20000 {
			t.overslept(by(i))
		}
		return t.spin
	}
	if got := settle(func(int) time.Duration {
		return 5 * time.Microsecond
	}); got < 4*time.Microsecond || got > 7*time.Microsecond {
		t.Errorf("5us late: spin %v", got)
	}
	if got := settle(func(i int) time.Duration {
		return time.Duration(i%20) * 2 * time.Microsecond
	}); got < 25*time.Microsecond || got > 45*time.Microsecond {
		t.Errorf("up to 38us late: spin %v, want about the longest", got)
	}
	if got := settle(func(int) time.Duration { return 3 * time.Millisecond }); got != leastSpin {
		t.Errorf("3ms late: spin %v, want the least", got)
	}
}

// A real-time thread sleeps until a millisecond is over in several, ever shorter sleeps; the first
// may end late by three times spin. An ordinary user's thread does so if cores are idle, else it sleeps once.
func TestSleepsBecomeShorter(t *testing.T) {
	const spin = 50 * time.Microsecond
	for _, c := range []struct {
		priority int
		idle     bool
		want     int
	}{{0, false, 1}, {0, true, 3}, {1, false, 3}} {
		th := thread{spin: spin, priority: c.priority, cores: cores{spare: true, idle: c.idle}}
		left, sleeps, last := time.Millisecond, 0, time.Millisecond
		for d := th.early(left); d > 0; d = th.early(left) {
			if left -= d; left < spin || d > last {
				t.Fatalf("%+v: sleep %d is %v and leaves %v", c, sleeps, d, left)
			}
			if sleeps == 0 && c.want > 1 && left != 3*spin {
				t.Errorf("the first sleep leaves %v, want %v", left, 3*spin)
			}
			sleeps, last = sleeps+1, d
		}
		if sleeps != c.want {
			t.Errorf("%+v: %d sleeps", c, sleeps)
		}
	}
}

// Cores are spare if the kernel reports that tasks wait for them in less than half of the time.
// They are idle if that is less than a twentieth. Without spare cores only spin is subtracted from a
// sleep, and each check of the clock reduces spin further.
// If the kernel reports that cores are short, the thread does not poll for frames. If tasks wait in four
// fifths of the time, it sleeps beyond the next event.
func TestShortCores(t *testing.T) {
	const spin = 50 * time.Microsecond
	th := thread{spin: spin, priority: 1}
	th.patience.score = mostPatience // it would poll
	for i, c := range []struct {
		text    string
		want    bool
		idle    bool
		polls   bool
		starved bool
	}{
		{text: "some total=1000000\n", polls: true}, // without a predecessor to compare with
		{text: "some total=1040000\n", want: true, polls: true},
		{text: "some total=1119000\n"},
		{text: "some total=1199000\n", starved: true},
		{text: "some total=1248000\n", want: true, polls: true},
		{text: "some total=1252000\n", want: true, idle: true, polls: true},
		{text: "nothing", polls: true},
	} {
		th.cores.saw(time.Duration(i+1)*100*time.Millisecond, []byte(c.text))
		if th.cores.spare != c.want || th.cores.idle != c.idle {
			t.Errorf("%d, %q: spare %v, idle %v; want %v and %v", i, c.text, th.cores.spare, th.cores.idle,
				c.want, c.idle)
		}
		if got := th.polls(0); got != c.polls {
			t.Errorf("%d, %q: polls %v, want %v", i, c.text, got, c.polls)
		}
		if got := th.early(0); c.starved && got != starvedSlack || !c.starved && got != 0 {
			t.Errorf("%d, %q: sleeps %v before an event that is due", i, c.text, got)
		}
	}
	if got := th.early(time.Millisecond); got != time.Millisecond-spin {
		t.Errorf("sleeps %v of a millisecond, want all but %v", got, spin)
	}
	th.pollsFor(1)
	th.pollsFor(1)
	if th.spin != spin-2*spinFade {
		t.Errorf("two looks left %v of %v", th.spin, spin)
	}
	th.cores.spare = true
	th.pollsFor(2)
	th.pollsFor(2)
	if th.spin != spin-2*spinFade-spinDown {
		t.Errorf("two looks for one due time left %v", th.spin)
	}
}
