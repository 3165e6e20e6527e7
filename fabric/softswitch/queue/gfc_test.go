package queue

import (
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// Stage k holds from Bk on, up to the next one, and is signalled once.
func TestStagesOfBufferBasedGFC(t *testing.T) {
	sw := softSwitch(1<<20, 2)
	stages := []units.Bytes{8000, 12_000, 14_000, 15_000}
	withGFC(sw, spec.GFCBuffer, plan.PortGFC{B1: 8000, BM: 16_000, Limit: 17_000, Stages: stages}, class)
	heard := listen(t)
	m, ports := memory(t, sw, heard)
	want := func(held int) (stage uint8) {
		for _, b := range stages {
			stage += uint8(count(held >= int(b)))
		}
		return stage
	}
	look := func(held int) {
		if _, stage := m.Asked(1, class); stage != want(held) || heard.stages[[2]int{1, class}] != stage {
			t.Errorf("%d bytes: stage %d, told %d, want %d", held, stage, heard.stages[[2]int{1, class}],
				want(held))
		}
	}
	for held := 500; held <= 17_000; held += 500 {
		one := frameOf(500, class)
		one.Ingress = 1
		if o := ports[0].Enqueue(0, one); o.Dropped {
			t.Fatalf("%d bytes: %+v", held, o)
		}
		look(held)
	}
	if heard.words != 4 {
		t.Errorf("%d stages were told on the way up, want 4", heard.words)
	}
	for held := 16_500; held >= 0; held -= 500 {
		ports[0].Dequeue(0)
		look(held)
	}
	if m.Report(5); heard.words != 8 || heard.report != 0 {
		t.Errorf("%d stages were told, want 8, and no reports", heard.words)
	}
}

// When thresholds change, the sender gets a signal of its new state. The bytes that the thresholds
// let wait are kept out of the shared bytes, and returned when no more wait.
func TestGFCThresholdsChange(t *testing.T) {
	at := func(b1 units.Bytes) Thresholds {
		return Thresholds{GFC: plan.PortGFC{B1: b1, BM: b1 + 4000, Limit: b1 + 5000,
			Stages: []units.Bytes{b1, b1 + 2000, b1 + 3000}, Period: units.Duration(b1)}}
	}
	for _, kind := range []string{spec.GFCBuffer, spec.GFCTime} {
		sw := softSwitch(40_000, 2)
		withGFC(sw, kind, at(4000).GFC, class)
		heard := listen(t)
		m, ports := memory(t, sw, heard)
		for range 5 {
			one := frameOf(1000, class)
			one.Ingress = 1
			ports[0].Enqueue(0, one)
		}
		if kind == spec.GFCTime {
			m.Report(4000)
		}
		look := func(now clock.Time, what string, stage uint8, report clock.Time, free int64) {
			t.Helper()
			if kind == spec.GFCTime {
				if stage = heard.stages[[2]int{1, class}]; heard.report != report {
					t.Errorf("%s: a report is asked for %d, want %d", what, heard.report, report)
				}
			}
			if heard.stages[[2]int{1, class}] != stage || m.free() != free {
				t.Errorf("%s, %s: told stage %d, want %d; %d bytes are free, want %d", kind, what,
					heard.stages[[2]int{1, class}], stage, m.free(), free)
			}
		}
		// 40,000 less two ports of 9,000 are shared.
		look(4000, "planned", 1, 8000, 22_000)
		if m.Set(4001, 1, at(40_000)) || m.Needs(1, at(40_000)) != 36_000 {
			t.Error("more than there is fits")
		}
		look(4001, "refused", 1, 8000, 22_000)
		if !m.Set(4001, 1, at(5001)) {
			t.Error("there is no room for 1001 bytes more")
		}
		look(4001, "more", 0, 8000, 22_000-1001) // the other port's period is the shorter one
		short := at(1500)
		short.GFC.Limit = 4999
		if !m.Set(4001, 1, at(1500)) || m.Shrink(1, short) {
			t.Error("less does not fit, or what waits is given back")
		}
		look(4001, "less", 3, 4500, 22_000-1001)
		if !m.Shrink(1, at(1500)) || m.Thresholds(1).GFC.Limit != 6500 {
			t.Errorf("5000 bytes wait, and %+v is kept", m.Thresholds(1).GFC)
		}
		ports[0].Flush(func(*packet.Packet) {})
		if m.Report(4500); heard.stages[[2]int{1, class}] != 0 || m.Used() != 0 || m.free() != 24_500 {
			t.Errorf("%s: stage %d, %d bytes used, %d free, and nothing waits", kind,
				heard.stages[[2]int{1, class}], m.Used(), m.free())
		}
	}
}

// gentleLink is a sender of a full line to a switch whose egress is stopped. It acts on a signal
// with a delay: tau has passed when the last bit arrives that was sent without knowledge of the
// signal.
type gentleLink struct {
	simulation
	sender *line
	memory *Memory
	after  time.Duration
}

func (l *gentleLink) Pause(int, uint8, bool) {}

func (l *gentleLink) Stage(_ int, q, stage uint8) {
	l.in(l.after, func() { l.sender.port.Stage(l.now, q, stage); l.sender.kick() })
}

func (l *gentleLink) ReportAt(at clock.Time) {
	l.in(at.Sub(l.now), func() { l.memory.Report(l.now) })
}

func (l *gentleLink) Rate(_ int, q uint8, share uint16) {
	l.in(l.after, func() { l.sender.port.Share(l.now, q, share); l.sender.kick() })
}

// fill sends to a stopped switch for a second, and returns the most bytes that it held and its
// drops.
func fill(t *testing.T, kind string, at plan.PortGFC, tau time.Duration) (held int64, dropped int) {
	const rate, frame = units.Rate(1e9), 100
	for k := 0; k < 17 && kind == spec.GFCBuffer; k++ {
		at.Stages = append(at.Stages, at.BM-(at.BM-at.B1)>>k)
	}
	at.Limit = at.BM + 2*frame
	sw := softSwitch(1<<24, 2)
	withGFC(sw, kind, at, class)
	nic := NewNIC(1 << 20)
	nic.SetLink(0, plan.Direction{Rate: rate})
	l := &gentleLink{after: tau - rate.SerialisationTime(frame)}
	m, ports := memory(t, sw, l)
	l.memory = m
	ports[1].Pause(0, class, true)
	next := func() {
		nic.Enqueue(l.now, &packet.Packet{Data: make([]byte, frame), Priority: class, Ingress: 0})
	}
	l.sender = &line{s: &l.simulation, port: nic, rate: rate, waking: -1}
	l.sender.arrived = func(one *packet.Packet) {
		next()
		dropped += count(ports[1].Enqueue(l.now, one).Dropped)
		held = max(held, m.Held(0, class))
	}
	next()
	next()
	l.sender.kick()
	l.run(clock.Time(100 * time.Millisecond))
	return held, dropped
}

// Buffer-based GFC never needs more than Bm if B1 <= Bm - 2*C*tau. Time-based GFC does not if B0 <=
// Bm - (sqrt(tau/T)+1)^2*C*T. Source: Qian et al., SIGCOMM 2019, theorems of section 5. Two frames
// are allowed in addition, because frames are not a fluid. With a quarter of that room both
// overflow.
func TestRoomOfGFC(t *testing.T) {
	const tau = 40 * time.Microsecond
	const inTau = 5000 // bytes, at 1 Gbit/s
	for kind, c := range map[string]struct {
		room   units.Bytes
		period time.Duration
	}{spec.GFCBuffer: {2 * inTau, 0}, spec.GFCTime: {4 * inTau, tau}} {
		at := plan.PortGFC{B1: 20_000, BM: 20_000 + c.room, Period: units.Duration(c.period)}
		if held, dropped := fill(t, kind, at, tau); dropped != 0 || held < int64(at.BM)-1000 {
			t.Errorf("%s: %d bytes at most and %d dropped, want nearly %s and none", kind, held, dropped,
				at.BM)
		}
		at.BM = 20_000 + c.room/4
		if held, dropped := fill(t, kind, at, tau); dropped == 0 {
			t.Errorf("%s: with a quarter of the room %d bytes at most, and nothing is dropped", kind, held)
		}
	}
}
