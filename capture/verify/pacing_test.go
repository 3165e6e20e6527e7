package verify

import (
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/privacy/privacytest"
)

// pacedPacket is a packet from rank 0 to rank 1. at is when the packet was released, by its
// timestamp. took is how much later it was at the tap.
type pacedPacket struct {
	at, took time.Duration
	engine   int
}

// pacedFrame is the length of the packets of TestPacing on the wire.
const pacedFrame = 1146

// paced plays packets of 1,000 bytes at a rate, changed by a function of their number.
func (s *scene) paced(packets int, rate float64, change func(n int, p *pacedPacket)) {
	s.pacedAs(packets, rate, nil, change)
}

// pacedAs plays them sealed, where there is a sealer.
func (s *scene) pacedAs(packets int, rate float64, sealer *privacy.Sealer,
	change func(n int, p *pacedPacket)) {
	s.rdRanks(4)
	s.step = 0
	for n := range packets {
		p := pacedPacket{at: time.Duration(float64(n) * pacedFrame * 8e9 / rate), took: 30 * time.Microsecond}
		if change != nil {
			change(n, &p)
		}
		s.now = start + int64(p.at)
		base := s.base(0, 1, p.engine, uint32(n))
		base.Length = rdPayloadBytes
		d := make(wire.RD, wire.RDDataLen+rdPayloadBytes)
		d.EncodeData(base, &wire.RDDataFields{Key: 7, Total: 1 << 30, Timestamp: uint32(s.now),
			Sum: wire.RDSum(d[wire.RDDataLen:])})
		s.now += int64(p.took)
		if sealer != nil {
			sealed, err := sealer.Seal(make([]byte, len(d)+wire.RDSealedLen), d[:wire.RDDataLen],
				d[wire.RDDataLen:], false, 0, clock.Time(n))
			if err != nil {
				s.t.Fatal(err)
			}
			d = sealed
		}
		s.rd(0, 1, 0, d)
	}
}

// TestPacing holds what is found ahead of a schedule, and what is not: each case is
// a run at 100 Mbit/s that is changed in one thing.
func TestPacing(t *testing.T) {
	const rate = 100e6
	each := time.Duration(pacedFrame * 8e9 / rate)
	for name, c := range map[string]struct {
		change func(n int, p *pacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {nil, pass, "200 packets in 1 schedules of 100mbit; at most 0s ahead by their " +
			"timestamps, 0s at the tap"},
		"all at once": {func(_ int, p *pacedPacket) { p.at = 0 }, verdict.Fail, "was let go"},
		"two together": {func(n int, p *pacedPacket) {
			if n%2 == 1 {
				p.at -= each
			}
		}, verdict.Fail, "was let go 92µs ahead of 100mbit"},
		"one per cent too fast": {func(_ int, p *pacedPacket) {
			p.at = p.at * 99 / 100
		}, verdict.Fail, "was let go"},
		"one per cent too slow": {func(_ int, p *pacedPacket) { p.at = p.at * 101 / 100 }, pass, "behind"},
		"late by 4 ms, and catching up": {func(n int, p *pacedPacket) {
			if n >= 50 {
				p.at = max(p.at, 50*each+4*time.Millisecond)
			}
		}, pass, "up to 4ms behind"},
		"more than was missed": {func(n int, p *pacedPacket) {
			if n >= 50 {
				p.at = 50*each + 4*time.Millisecond
			}
		}, verdict.Fail, "was let go"},
		"late by 20 ms, and all of it made up for": {func(n int, p *pacedPacket) {
			if n < 199 && n > 0 {
				p.at = max(p.at, 20*time.Millisecond-time.Microsecond)
			}
		}, verdict.Fail, "was let go"},
		"a lie about the time": {func(n int, p *pacedPacket) {
			p.took = 20*time.Millisecond - p.at // all are at the tap at once
		}, verdict.Fail, "was at the NIC"},
		"the first was held up on its way": {func(n int, p *pacedPacket) {
			if n == 0 {
				p.took = 3 * time.Millisecond
			}
			p.took = max(p.took, 3*time.Millisecond+time.Duration(n)-p.at)
		}, pass, ""},
		"delays on the way": {func(n int, p *pacedPacket) {
			p.took += time.Duration(n*n%40) * 10 * time.Microsecond
		}, pass, ""},
	} {
		s := newScene(t)
		s.paced(200, rate, c.change)
		results, _ := s.run(newPacing(s.workload, pacingOptions{Rate: rate}))
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
	const sealedFrame = pacedFrame + wire.RDSealedLen
	each := time.Duration(sealedFrame * 8e9 / rate)
	stall := func(d time.Duration) func(n int, p *pacedPacket) { // from packet 50 on
		return func(n int, p *pacedPacket) {
			if p.at = time.Duration(n) * each; n >= 50 {
				p.at = max(p.at, 50*each+d)
			}
		}
	}
	for name, c := range map[string]struct {
		rate   float64
		change func(n int, p *pacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {rate, func(n int, p *pacedPacket) {
			p.at = time.Duration(n) * each
		}, pass, "at most one packet and 0s at the rate beyond it in any time (allowed 6ms)"},
		"all at once": {rate, func(_ int, p *pacedPacket) { p.at = 0 },
			verdict.Fail, "rank 0 to "},
		"a little too fast": {rate, func(n int, p *pacedPacket) {
			p.at = time.Duration(n) * each * 75 / 100
		}, verdict.Fail, "passed the NIC beyond the rate"},
		"late by 4 ms, and catching up": {rate, stall(4 * time.Millisecond), pass,
			"at most one packet and 4ms"},
		"late by 8 ms, and all of it": {rate, stall(8 * time.Millisecond), unclear,
			"a host that held packets up does that, too"},
		"late by 13 ms": {rate, stall(13 * time.Millisecond), verdict.Fail,
			"passed the NIC beyond the rate"},
		"two together, where a packet is 95 ms": {1e5, func(n int, p *pacedPacket) {
			p.at = time.Duration(n/2) * 2 * each * 1000
		}, verdict.Fail, "passed the NIC"},
	} {
		s := newScene(t)
		sealer := privacy.NewSealer(privacytest.Secret(), privacy.Direction{From: 1, To: 2}, privacy.Limits{})
		s.pacedAs(600, rate, sealer, c.change)
		results, _ := s.run(newPacing(s.workload, pacingOptions{Rate: units.Rate(c.rate)}))
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
	each := time.Duration(pacedFrame * 8e9 / rate)
	// The packets of engine 1 are at the tap four others later.
	pass4 := func(n int, p *pacedPacket) {
		if p.engine = n / 4 % 2; p.engine == 1 {
			p.took += 5 * each / 2
		}
	}
	for name, c := range map[string]struct {
		change func(n int, p *pacedPacket)
		want   verdict.Verdict
		says   string
	}{
		"kept": {pass4, pass, "0s at the tap"},
		"late by 4 ms, and catching up": {func(n int, p *pacedPacket) {
			if n >= 50 {
				p.at = max(p.at, 50*each+4*time.Millisecond)
			}
			pass4(n, p)
		}, pass, "behind"},
		"late by 7 ms, and all of it": {func(n int, p *pacedPacket) {
			if n >= 50 {
				p.at = max(p.at, 50*each+7*time.Millisecond)
			}
			pass4(n, p)
		}, verdict.Fail, "2 engines let go a packet and 6.9"},
		"five per cent too fast": {func(n int, p *pacedPacket) {
			p.at = p.at * 95 / 100
			pass4(n, p)
		}, verdict.Fail, "2 engines let go"},
	} {
		s := newScene(t)
		s.paced(2000, rate, c.change)
		results, _ := s.run(newPacing(s.workload,
			pacingOptions{Rate: rate, Tolerance: 20 * time.Millisecond}))
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
	s := newScene(t)
	rank := s.plan.Ranks[0]
	rate := float64(s.plan.Sends(rank.Node, rank.NIC).Rate)
	s.paced(200, rate, nil)
	results, _ := s.run(newPacing(s.workload, pacingOptions{}),
		newPacing(Workload{Name: "none"}, pacingOptions{}))
	if results[0].Verdict != pass || results[1].Verdict != unclear {
		t.Errorf("%+v", results)
	}
	fast := newScene(t)
	fast.paced(2000, rate*1.1, nil)
	if results, _ := fast.run(newPacing(fast.workload, pacingOptions{})); results[0].Verdict != verdict.Fail {
		t.Errorf("a tenth too fast: %+v", results)
	}
	lossy := newScene(t)
	lossy.paced(200, rate, nil)
	lossy.untapped[rank.Node+":"+rank.NIC] = true
	if results, _ := lossy.run(newPacing(lossy.workload, pacingOptions{})); results[0].Verdict != unclear {
		t.Errorf("without a tap: %+v", results)
	}
}
