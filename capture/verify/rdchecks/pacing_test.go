package rdchecks

import (
	"strings"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/privacytest"
	"railbed/testkit/verifytest"
	"railbed/transports/rd/privacy"
)

// TestPacing holds what is found ahead of a schedule, and what is not: each case is
// a run at 100 Mbit/s that is changed in one thing.
func TestPacing(t *testing.T) {
	const rate = 100e6
	each := time.Duration(verifytest.PacedFrame * 8e9 / rate)
	for name, c := range map[string]struct {
		change func(n int, p *verifytest.PacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {nil, pass, "200 packets in 1 schedule of 100mbit; at most 0s ahead by their " +
			"timestamps, 0s at the tap"},
		"all at once": {func(_ int, p *verifytest.PacedPacket) { p.At = 0 }, verdict.Fail, "was released"},
		"two together": {func(n int, p *verifytest.PacedPacket) {
			if n%2 == 1 {
				p.At -= each
			}
		}, verdict.Fail, "was released 92µs too early for 100mbit"},
		"one per cent too fast": {func(_ int, p *verifytest.PacedPacket) {
			p.At = p.At * 99 / 100
		}, verdict.Fail, "was released"},
		"one per cent too slow": {func(_ int, p *verifytest.PacedPacket) {
			p.At = p.At * 101 / 100
		}, pass, "behind"},
		"late by 4 ms, and catching up": {func(n int, p *verifytest.PacedPacket) {
			if n >= 50 {
				p.At = max(p.At, 50*each+4*time.Millisecond)
			}
		}, pass, "up to 4ms behind"},
		"more than was missed": {func(n int, p *verifytest.PacedPacket) {
			if n >= 50 {
				p.At = 50*each + 4*time.Millisecond
			}
		}, verdict.Fail, "was released"},
		"late by 20 ms, and all of it made up for": {func(n int, p *verifytest.PacedPacket) {
			if n < 199 && n > 0 {
				p.At = max(p.At, 20*time.Millisecond-time.Microsecond)
			}
		}, verdict.Fail, "was released"},
		"a lie about the time": {func(n int, p *verifytest.PacedPacket) {
			p.Took = 20*time.Millisecond - p.At // all are at the tap at once
		}, verdict.Fail, "was at the NIC"},
		"the first was held up on its way": {func(n int, p *verifytest.PacedPacket) {
			if n == 0 {
				p.Took = 3 * time.Millisecond
			}
			p.Took = max(p.Took, 3*time.Millisecond+time.Duration(n)-p.At)
		}, pass, ""},
		"delays on the way": {func(n int, p *verifytest.PacedPacket) {
			p.Took += time.Duration(n*n%40) * 10 * time.Microsecond
		}, pass, ""},
	} {
		s := verifytest.NewScene(t)
		s.Paced(200, rate, c.change)
		results, _ := s.Run(NewPacing(s.Workload, &spec.PacingCheck{Rate: rate}))
		r := results[0]
		if text := r.Summary + "\n" + strings.Join(r.Details, "\n"); r.Verdict != c.want ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %s, want %s and %q: %s", name, r.Verdict, c.want, c.says, text)
		}
	}
}

// TestPacingOfEncrypted judges packets without a readable timestamp by the packets that pass the
// tap in any time. Each case is a run at 100 Mbit/s.
func TestPacingOfEncrypted(t *testing.T) {
	const rate = 100e6
	const sealedFrame = verifytest.PacedFrame + wire.RDSealedLen
	each := time.Duration(sealedFrame * 8e9 / rate)
	stall := func(d time.Duration) func(n int, p *verifytest.PacedPacket) { // from packet 50 on
		return func(n int, p *verifytest.PacedPacket) {
			if p.At = time.Duration(n) * each; n >= 50 {
				p.At = max(p.At, 50*each+d)
			}
		}
	}
	for name, c := range map[string]struct {
		rate   float64
		change func(n int, p *verifytest.PacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {rate, func(n int, p *verifytest.PacedPacket) {
			p.At = time.Duration(n) * each
		}, pass, "at most one packet and 0s beyond the rate in any interval (allowed 6ms)"},
		"all at once": {rate, func(_ int, p *verifytest.PacedPacket) { p.At = 0 },
			verdict.Fail, "rank 0 to "},
		"a little too fast": {rate, func(n int, p *verifytest.PacedPacket) {
			p.At = time.Duration(n) * each * 75 / 100
		}, verdict.Fail, "more than the rate allows passed the NIC"},
		"late by 4 ms, and catching up": {rate, stall(4 * time.Millisecond), pass,
			"at most one packet and 4ms"},
		"late by 8 ms, and all of it": {rate, stall(8 * time.Millisecond), unclear,
			"a host that delays packets can cause this, too"},
		"late by 13 ms": {rate, stall(13 * time.Millisecond), verdict.Fail,
			"more than the rate allows passed the NIC"},
		"two together, where a packet is 95 ms": {1e5, func(n int, p *verifytest.PacedPacket) {
			p.At = time.Duration(n/2) * 2 * each * 1000
		}, verdict.Fail, "passed the NIC"},
	} {
		s := verifytest.NewScene(t)
		sealer := privacy.NewSealer(privacytest.Secret(), privacy.Direction{From: 1, To: 2}, privacy.Limits{})
		s.PacedAs(600, rate, sealer, c.change)
		results, _ := s.Run(NewPacing(s.Workload, &spec.PacingCheck{Rate: units.Rate(c.rate)}))
		r := results[0]
		if text := r.Summary + "\n" + strings.Join(r.Details, "\n"); r.Verdict != c.want ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %s, want %s and %q: %s", name, r.Verdict, c.want, c.says, text)
		}
	}
}

// TestPacingOfEngines holds what is found of two engines that share a rate, whose
// packets pass each other on their way: each case is a run at 100 Mbit/s.
func TestPacingOfEngines(t *testing.T) {
	const rate = 100e6
	each := time.Duration(verifytest.PacedFrame * 8e9 / rate)
	// The packets of engine 1 are at the tap four others later.
	pass4 := func(n int, p *verifytest.PacedPacket) {
		if p.Engine = n / 4 % 2; p.Engine == 1 {
			p.Took += 5 * each / 2
		}
	}
	for name, c := range map[string]struct {
		change func(n int, p *verifytest.PacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {pass4, pass, "0s at the tap"},
		"late by 4 ms, and catching up": {func(n int, p *verifytest.PacedPacket) {
			if n >= 50 {
				p.At = max(p.At, 50*each+4*time.Millisecond)
			}
			pass4(n, p)
		}, pass, "behind"},
		"late by 7 ms, and all of it": {func(n int, p *verifytest.PacedPacket) {
			if n >= 50 {
				p.At = max(p.At, 50*each+7*time.Millisecond)
			}
			pass4(n, p)
		}, verdict.Fail, "2 engines released a packet and 6.9"},
		"five per cent too fast": {func(n int, p *verifytest.PacedPacket) {
			p.At = p.At * 95 / 100
			pass4(n, p)
		}, verdict.Fail, "2 engines released"},
	} {
		s := verifytest.NewScene(t)
		s.Paced(2000, rate, c.change)
		results, _ := s.Run(NewPacing(s.Workload,
			&spec.PacingCheck{Rate: rate, Tolerance: units.Duration(20 * time.Millisecond)}))
		r := results[0]
		if text := r.Summary + "\n" + strings.Join(r.Details, "\n"); r.Verdict != c.want ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %s, want %s and %q: %s", name, r.Verdict, c.want, c.says, text)
		}
	}
}

// TestPacingOfNICs holds that what a NIC sends to several is judged together, at its
// link's rate, and that nothing seen proves nothing.
func TestPacingOfNICs(t *testing.T) {
	s := verifytest.NewScene(t)
	rank := s.Plan.Ranks[0]
	rate := float64(s.Plan.Sends(rank.Node, rank.NIC).Rate)
	s.Paced(200, rate, nil)
	results, _ := s.Run(NewPacing(s.Workload, &spec.PacingCheck{}),
		NewPacing(evidence.Workload{Name: "none"}, &spec.PacingCheck{}))
	if results[0].Verdict != pass || results[1].Verdict != unclear {
		t.Errorf("%+v", results)
	}
	fast := verifytest.NewScene(t)
	fast.Paced(2000, rate*1.1, nil)
	if results, _ := fast.Run(NewPacing(fast.Workload,
		&spec.PacingCheck{})); results[0].Verdict != verdict.Fail {
		t.Errorf("a tenth too fast: %+v", results)
	}
	lossy := verifytest.NewScene(t)
	lossy.Paced(200, rate, nil)
	lossy.Untapped[rank.Node+":"+rank.NIC] = true
	if results, _ := lossy.Run(NewPacing(lossy.Workload,
		&spec.PacingCheck{})); results[0].Verdict != unclear {
		t.Errorf("without a tap: %+v", results)
	}
}
