package dcqcn

import (
	"math"
	"testing"
	"time"

	"railbed/internal/clock"
)

const gbit = 1_000_000_000

func point(t *testing.T, p Params) *ReactionPoint {
	t.Helper()
	r, err := NewReactionPoint(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Abs(want)+1 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestCut: the first CNP halves the rate, since alpha is 1. A CNP after n silent periods cuts by
// half of the present alpha, (1-g)^n (equations 1 and 2 of the paper's section 3.1).
func TestCut(t *testing.T) {
	p := Params{Line: 40 * gbit, Gain: 1.0 / 16, IncreasePeriod: time.Second,
		AlphaPeriod: 100 * time.Microsecond}
	r := point(t, p)
	if r.Rate() != 40*gbit || r.Stage() != Unlimited || r.Deadline() != clock.Never {
		t.Errorf("starts at %d, %v", r.Rate(), r.Stage())
	}
	r.Notified(0)
	near(t, "after one CNP", float64(r.Rate()), 20*gbit)
	near(t, "its target", float64(r.Target()), 40*gbit)
	near(t, "alpha stays 1", r.Alpha()*1e9, 1e9)
	const n = 7
	r.Advance(clock.Time(n*100*time.Microsecond) + 1)
	fallen := math.Pow(15.0/16, n)
	near(t, "alpha after silence", r.Alpha()*1e9, fallen*1e9)
	r.Notified(clock.Time(n*100*time.Microsecond) + 2)
	near(t, "after the next", float64(r.Rate()), 20*gbit*(1-fallen/2))
	near(t, "its target", float64(r.Target()), 20*gbit)
	near(t, "alpha", r.Alpha()*1e9, (15.0/16*fallen+1.0/16)*1e9)
}

// TestCutAfterSilence: who drives a point may be late, and its alpha has fallen all the
// same by the time of the CNP; and a CNP starts the byte counter anew.
func TestCutAfterSilence(t *testing.T) {
	p := Params{Line: 40 * gbit, Gain: 1.0 / 16, IncreasePeriod: time.Second,
		AlphaPeriod: 100 * time.Microsecond, IncreaseBytes: 1000}
	r := point(t, p)
	r.Notified(0)
	r.Notified(clock.Time(701 * time.Microsecond))
	near(t, "after seven periods", float64(r.Rate()), 20*gbit*(1-math.Pow(15.0/16, 7)/2))
	now := clock.Time(701 * time.Microsecond)
	r.Sent(now, 999)
	r.Notified(now)
	before := r.Rate()
	if r.Sent(now, 999); r.Rate() != before {
		t.Error("bytes from before a CNP count")
	}
	if r.Sent(now, 1); r.Rate() <= before {
		t.Error("1,000 bytes raise nothing")
	}
}

// TestRecoverySteps follows the rate event by event. Fast recovery halves the distance to the
// target F times. Then the target rises by R_AI. Once both the timer and the byte counter are past
// F, it rises by i x R_HAI.
func TestRecoverySteps(t *testing.T) {
	p := Params{Line: 100 * gbit, Additive: gbit, Hyper: 3 * gbit, IncreasePeriod: time.Millisecond,
		IncreaseBytes: 1000, AlphaPeriod: time.Hour}
	r := point(t, p)
	r.Notified(0) // 50 of 100
	r.Notified(1) // 25 of 50
	current, target := 25.0*gbit, 50.0*gbit
	at := clock.Time(1)
	step := func(what string, stage Stage, by float64) {
		t.Helper()
		target += by
		current = (current + target) / 2
		near(t, what+": rate", float64(r.Rate()), current)
		near(t, what+": target", float64(r.Target()), target)
		if r.Stage() != stage {
			t.Errorf("%s: %v, want %v", what, r.Stage(), stage)
		}
	}
	tick := func() {
		at = at.Add(time.Millisecond)
		if r.Deadline() != at {
			t.Errorf("deadline %v, want %v", r.Deadline(), at)
		}
		r.Advance(at)
	}
	for range 5 {
		tick()
		step("timer", FastRecovery, 0)
	}
	for range 2 {
		tick()
		step("timer past F", AdditiveIncrease, gbit)
	}
	for range 5 {
		r.Sent(at, 999)
		r.Sent(at, 1)
		step("bytes", AdditiveIncrease, gbit)
	}
	r.Sent(at, 1000)
	step("both past F", HyperIncrease, 3*gbit) // i = min(7, 6) - 5
	tick()
	step("timer, the counter behind", HyperIncrease, 3*gbit) // min(8, 6) - 5
	r.Sent(at, 2000)
	target += 2 * 3 * gbit // min(8, 7) - 5
	current = (current + target) / 2
	step("two events of bytes", HyperIncrease, 3*3*gbit) // min(8, 8) - 5
	r.Notified(at)
	if r.Stage() != FastRecovery {
		t.Errorf("%v after a CNP", r.Stage())
	}
	near(t, "target after a CNP", float64(r.Target()), current)
}

// TestBounds: a flood of CNPs stops at the least rate, and silence ends at the
// line's, where the flow has nothing to wait for.
func TestBounds(t *testing.T) {
	r := point(t, Params{Line: gbit})
	for i := range 1000 {
		r.Notified(clock.Time(i))
	}
	if r.Rate() != gbit/100 {
		t.Errorf("%d bit/s after 1,000 CNPs, want %d", r.Rate(), gbit/100)
	}
	r.Advance(clock.Time(time.Second))
	if r.Rate() != gbit || r.Stage() != Unlimited || r.Deadline() != clock.Never {
		t.Errorf("%d bit/s, %v a second later", r.Rate(), r.Stage())
	}
	r.Notified(clock.Time(2 * time.Second))
	if r.Rate() != gbit/2 {
		t.Errorf("%d bit/s after the CNP that follows, want %d", r.Rate(), gbit/2)
	}
}

// TestGap: of a flow whose packets all come marked there is one CNP in each gap.
func TestGap(t *testing.T) {
	n := NewNotificationPoint(Params{})
	for at, want := range map[int]bool{0: true, 49_999: false, 50_000: true} {
		m := NewNotificationPoint(Params{})
		if m.Marked(0); at > 0 && m.Marked(clock.Time(at)) != want {
			t.Errorf("%d ns after a CNP: %v", at, !want)
		}
	}
	var sent []clock.Time
	for at := clock.Time(0); at < clock.Time(200*time.Microsecond); at = at.Add(7 * time.Microsecond) {
		if n.Marked(at) {
			sent = append(sent, at)
		}
	}
	if len(sent) != 4 {
		t.Errorf("CNPs at %v, want 4", sent)
	}
	for i := 1; i < len(sent); i++ {
		if gap := sent[i].Sub(sent[i-1]); gap < 50*time.Microsecond || gap >= 57*time.Microsecond {
			t.Errorf("%v between CNPs", gap)
		}
	}
}

// TestFairShares: two flows share a bottleneck. The first begins at line rate, the second was cut.
// They converge to the same rate (the paper's section 3.2): in each gap in which their sum exceeds
// the line's rate, both get a CNP.
func TestFairShares(t *testing.T) {
	a, b := point(t, Params{Line: gbit}), point(t, Params{Line: gbit})
	for i := range 6 {
		b.Notified(clock.Time(i))
	}
	var sumA, sumB float64
	const gap = 50 * time.Microsecond
	for i := 1; i <= 40_000; i++ {
		now := clock.Time(i) * clock.Time(gap)
		for _, r := range []*ReactionPoint{a, b} {
			r.Sent(now, int(float64(r.Rate())*gap.Seconds()/8))
		}
		if a.Rate()+b.Rate() > gbit {
			a.Notified(now)
			b.Notified(now)
		}
		if i > 20_000 {
			sumA, sumB = sumA+float64(a.Rate()), sumB+float64(b.Rate())
		}
	}
	if ratio := sumA / sumB; ratio < 0.95 || ratio > 1.05 {
		t.Errorf("rates %v : %v in the second half", sumA/20_000, sumB/20_000)
	}
	if used := (sumA + sumB) / 20_000 / gbit; used < 0.7 || used > 1.05 {
		t.Errorf("%v of the line in use", used)
	}
}

// TestScaled: a period is as many packets long on slow lines as on those that it was
// made for, and no longer than the paper's on fast ones.
func TestScaled(t *testing.T) {
	for line, want := range map[uint64]time.Duration{40 * gbit: 55 * time.Microsecond,
		10 * gbit: 55 * time.Microsecond, gbit: 550 * time.Microsecond, gbit / 20: 11 * time.Millisecond} {
		p := Scaled(line)
		if p.AlphaPeriod != want || p.IncreasePeriod != want || p.NotificationGap != want*50/55 ||
			p.Check() != nil {
			t.Errorf("at %d bit/s %+v, want %v", line, p, want)
		}
	}
}

// TestParams: numbers that cannot be are refused.
func TestParams(t *testing.T) {
	for what, p := range map[string]Params{
		"no line":   {},
		"gain":      {Line: 1, Gain: 2},
		"period":    {Line: 1, AlphaPeriod: -1},
		"counter":   {Line: 1, IncreaseBytes: -1},
		"least":     {Line: 10, Least: 11},
		"negative":  {Line: 1, NotificationGap: -1},
		"no stages": {Line: 1, Stages: -1},
	} {
		if _, err := NewReactionPoint(p); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if got := Stage(9).String(); got != "unknown" {
		t.Errorf("%s", got)
	}
}

// FuzzRate: for any events, the rate is between the least and the line's. The target is not below
// it, alpha is between 0 and 1, and no deadline is left in the past. Only a CNP makes the rate
// fall. The input is a series of events: which, and after how long.
func FuzzRate(f *testing.F) {
	f.Add([]byte{0, 1, 1, 200, 2, 9, 0, 3, 1, 255, 1, 255})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 60, 2, 60, 1, 60, 2, 60})
	f.Fuzz(func(t *testing.T, input []byte) {
		p := Params{Line: gbit, IncreaseBytes: 20_000}
		r, n := point(t, p), NewNotificationPoint(p)
		now, told, said := clock.Time(0), clock.Time(0), false
		for ; len(input) >= 2; input = input[2:] {
			now = now.Add(time.Duration(input[1]) * time.Duration(1+input[0]>>4) * time.Microsecond)
			before := r.Rate()
			switch input[0] & 3 {
			case 0:
				r.Advance(now)
				before = r.Rate()
				r.Notified(now)
				if r.Rate() > before || r.Target() < before-1 || r.Stage() != FastRecovery {
					t.Fatalf("%d bit/s after a CNP, target %d, before %d", r.Rate(), r.Target(), before)
				}
				before = 0
			case 1:
				r.Advance(now)
			case 2:
				r.Sent(now, int(input[1])*100)
			case 3:
				if n.Marked(now) {
					if said && now.Sub(told) < 50*time.Microsecond {
						t.Fatalf("CNPs at %v and %v", told, now)
					}
					told, said = now, true
				}
				continue
			}
			if r.Rate() < gbit/100 || r.Rate() > gbit || r.Rate() < before || r.Target() > gbit ||
				r.Target() < r.Rate() || r.Alpha() <= 0 || r.Alpha() > 1 || r.Deadline() <= now {
				t.Fatalf("%d bit/s, before %d, target %d, alpha %v, next at %v, now %v", r.Rate(), before,
					r.Target(), r.Alpha(), r.Deadline(), now)
			}
		}
	})
}
