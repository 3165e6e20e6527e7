package queue

import (
	"math"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// With n queues at the threshold T = alpha*(B-Q) of a shared buffer B each holds alpha/(1+n*alpha)
// of it. Source: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, equation 2.
// The tolerance is a packet and the resulting change of the threshold. A queue that joins later has
// its share when the others have drained to theirs.
func TestSharesOfTheDynamicThreshold(t *testing.T) {
	const length = 4000
	for _, alpha := range []units.Factor{{Num: 1, Den: 2}, {Num: 1, Den: 1}, {Num: 2, Den: 1},
		{Num: 8, Den: 1}, {Num: 1, Den: 16}} {
		const ports = 12
		sw := softSwitch(4_000_000, ports)
		sw.Soft.Alpha = alpha
		m, egress := memory(t, sw, nil)
		data := make([]byte, length) // of all
		for _, busy := range []int{1, 2, 3, 7, ports} {
			// Two packets arrive at each busy queue for each packet that leaves.
			for range 2_500 {
				for _, p := range egress[:busy] {
					p.Enqueue(0, &packet.Packet{Data: data, Ingress: -1})
					p.Enqueue(0, &packet.Packet{Data: data, Ingress: -1})
					p.Dequeue(0)
				}
			}
			a, n := alpha.Float(), float64(busy)
			want := a * 4e6 / (1 + n*a)
			for i, p := range egress[:busy] {
				if got := float64(p.Depth(0)); math.Abs(got-want) > length*(3+a) {
					t.Errorf("alpha %v, %d queues: queue %d holds %.0f bytes, want %.0f", alpha, busy, i, got,
						want)
				}
			}
			if got := float64(m.Size() - m.Used()); math.Abs(got-4e6/(1+n*a)) > length*(3+a)*n {
				t.Errorf("alpha %v, %d queues: %.0f bytes stay free, want %.0f", alpha, busy, got,
					4e6/(1+n*a))
			}
		}
	}
}

// A packet is dropped for its queue's threshold, or for the whole buffer, and the outcome contains
// the reason.
func TestReasonsOfDrops(t *testing.T) {
	sw := softSwitch(10_000, 1)
	sw.Soft.Alpha = units.Factor{Num: 8, Den: 1}
	_, ports := memory(t, sw, nil)
	p := ports[0]
	for i, c := range []struct {
		length int
		q      uint8
		want   Outcome
	}{
		{9_000, 1, Outcome{Queue: 1}},
		{1_001, 2, Outcome{Queue: 2, Reason: Buffer, Dropped: true}},
		{500, 1, Outcome{Queue: 1, Reason: Tail, Dropped: true, Depth: 9_000}}, // 9,000 > 8 * 1,000
		{1_000, 2, Outcome{Queue: 2}},
		{1, 3, Outcome{Queue: 3, Reason: Buffer, Dropped: true}},
	} {
		if got := p.Enqueue(0, frameOf(c.length, c.q)); got != c.want {
			t.Errorf("packet %d: %+v, want %+v", i, got, c.want)
		}
	}
	nic := NewNIC(1500)
	nic.Enqueue(0, frameOf(1000, 5))
	if got, want := nic.Enqueue(0, frameOf(501, 5)),
		(Outcome{Queue: 5, Reason: NICOverrun, Dropped: true, Depth: 1000}); got != want {
		t.Errorf("emulated NIC: %+v, want %+v", got, want)
	}
	if got := nic.Enqueue(0, frameOf(1500, 4)); got.Dropped || nic.Dequeue(0).Priority != 5 {
		t.Errorf("emulated NIC: %+v, or not strict by priority", got)
	}
}

// The link's own limit is of all lossy priorities together, and of no lossless
// one.
func TestLinkLimit(t *testing.T) {
	sw := softSwitch(1<<20, 1)
	withPFC(sw, plan.PortPFC{XOff: 8000, XOn: 4000, Headroom: 8000}, 3)
	_, ports := memory(t, sw, listen(t))
	p := ports[0]
	p.SetLink(0, plan.Direction{Rate: 1e9, Queue: 3000})
	for i, c := range []struct {
		q    uint8
		want Reason
	}{{0, Accepted}, {1, Accepted}, {3, Accepted}, {2, Accepted}, {1, Tail}, {3, Accepted}} {
		one := frameOf(1000, c.q)
		one.Ingress = 0
		if got := p.Enqueue(0, one); got.Reason != c.want {
			t.Errorf("packet %d: reason %d, want %d", i, got.Reason, c.want)
		}
	}
}

// What cannot work is refused.
func TestMemoryRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*plan.Switch){
		"not a soft switch":  func(sw *plan.Switch) { sw.Soft = nil },
		"alpha is 0/0":       func(sw *plan.Switch) { sw.Soft.Alpha = units.Factor{} },
		"exceed its size of": func(sw *plan.Switch) { sw.Soft.Shared++ },
		"need 20001 bytes for lossless": func(sw *plan.Switch) {
			sw.Ports[1].PFC = &plan.PortPFC{XOff: 5001, XOn: 1, Headroom: 5000}
		},
		"xon <= xoff":     func(sw *plan.Switch) { sw.Ports[1].PFC = &plan.PortPFC{XOff: 1, XOn: 2} },
		"both PFC and GF": func(sw *plan.Switch) { sw.Soft.GFC = &plan.GFC{Priorities: []int{3}} },
		"b1 < bm": func(sw *plan.Switch) {
			sw.Soft.GFC = &plan.GFC{Kind: "buffer", Priorities: []int{4}}
		},
		"ecn is of kind": func(sw *plan.Switch) {
			sw.Soft.ECN = &plan.ECN{Kind: "pie", Priorities: []int{1}}
		},
		"gfc is of kind": func(sw *plan.Switch) {
			sw.Soft.GFC = &plan.GFC{Kind: "share", Priorities: []int{4}}
		},
	} {
		sw := softSwitch(100_000, 2)
		withPFC(sw, plan.PortPFC{XOff: 5000, XOn: 4000, Headroom: 5000}, 3)
		if _, err := NewMemory(sw, listen(t)); err != nil {
			t.Fatal(err)
		}
		spoil(sw)
		if _, err := NewMemory(sw, listen(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	sw := softSwitch(100_000, 1)
	withPFC(sw, plan.PortPFC{XOff: 5000, Headroom: 5000}, 3)
	if _, err := NewMemory(sw, nil); err == nil {
		t.Error("a lossless priority without anybody to signal to is accepted")
	}
}

// A slowed priority sends at its rate to the bit, and debts are paid at the new
// rate when that changes.
func TestSlowedPriorityKeepsItsRate(t *testing.T) {
	p := NewNIC(1 << 30)
	p.SetLink(0, plan.Direction{Rate: 1e9})
	for stage := range uint8(10) {
		p.Stage(0, 3, stage)
		now := clock.Time(0)
		for i := range 100 {
			p.Enqueue(now, frameOf(1000, 3))
			now = p.Next(now)
			want := clock.Time(i) * 8000 << stage // 8 us at 1 Gbit/s
			if stage == 0 {
				want = 0
			}
			if now != want {
				t.Fatalf("stage %d: packet %d is sent at %d, want %d", stage, i, now, want)
			}
			if now > 0 && p.Dequeue(now-1) != nil {
				t.Fatalf("stage %d: packet %d is sent too early", stage, i)
			}
			p.Dequeue(now)
		}
		p.Stage(now, 3, 0)
	}
	// 0.3 of the line: 26,666 2/3 ns a packet, and the thirds are not lost.
	p.Limit(0, 3, 300e6)
	for range 3_000 {
		p.Enqueue(0, frameOf(1000, 3))
		p.Dequeue(p.Next(0))
	}
	p.Enqueue(0, frameOf(1000, 3))
	if got, want := p.Next(0), clock.Time(80_000_000); got != want {
		t.Errorf("3,000 packets took %d, want %d", got, want)
	}
	p.Dequeue(p.Next(0))
	// Half of a packet at 1/1024 is still owed, and paid at 1/4.
	p.Stage(0, 3, 0)
	p.Stage(0, 3, 10)
	p.Enqueue(0, frameOf(1000, 3))
	p.Dequeue(0)
	p.Enqueue(0, frameOf(1000, 3))
	p.Stage(8000<<9, 3, 2)
	if got, want := p.Next(0), clock.Time(8000<<9+8000<<1); got != want {
		t.Errorf("the next packet may go at %d, want %d", got, want)
	}
	p.SetLink(8000<<9, plan.Direction{Rate: 2e9}) // a quarter of twice as much
	if got, want := p.Next(0), clock.Time(8000<<9+8000); got != want {
		t.Errorf("the next packet may go at %d, want %d", got, want)
	}
}

// Time-based GFC signals a share of the line that falls from 1 at B0 to 0 at Bm in proportion (Qian
// et al., SIGCOMM 2019, section 4.1), every period.
func TestReportsOfTimeBasedGFC(t *testing.T) {
	sw := softSwitch(1<<20, 2)
	at := plan.PortGFC{B1: 10_000, BM: 110_000, Limit: 110_000, Period: units.Duration(time.Microsecond)}
	withGFC(sw, spec.GFCTime, at, 3)
	// its state before any signal
	heard := &shares{spoken: listen(t), last: map[int]uint16{1: FullRate}}
	m, ports := memory(t, sw, heard)
	now := clock.Time(0)
	for held := 0; held <= 110_000; held += 1000 {
		// Asked for with the packet that exceeds B0, and then by each report.
		before := heard.last[1]
		if m.Report(now - 1); heard.last[1] != before {
			t.Fatalf("a report before its time")
		}
		if m.Report(now); held > 10_000 && heard.report != now+1000 || held <= 10_000 && heard.report != 0 {
			t.Fatalf("%d bytes at %d: the next report is at %d", held, now, heard.report)
		}
		want := min(1, float64(110_000-held)/100_000)
		if got := float64(heard.last[1]) / FullRate; math.Abs(got-want) > 1.0/FullRate {
			t.Errorf("%d bytes: the sender is told %.5f, want %.5f", held, got, want)
		}
		one := frameOf(1000, 3)
		one.Ingress = 1
		if o := ports[0].Enqueue(now+1, one); o.Dropped != (held == 110_000) {
			t.Errorf("%d bytes: %+v", held, o)
		}
		now += 1000
	}
	if heard.last[1] == 0 {
		t.Error("the sender was stopped")
	}
	ports[0].Flush(func(*packet.Packet) {})
	for range 3 {
		m.Report(now)
		now += 1000
	}
	if heard.last[1] != FullRate || heard.full != 1 {
		t.Errorf("the emptied port's sender was last told %d, and the whole rate %d times; want it once",
			heard.last[1], heard.full)
	}
	if last := now - 3000; heard.report != last {
		t.Errorf("the last report was asked for %d, and all have the whole line since %d", heard.report, last)
	}
	one := frameOf(10_001, 3)
	one.Ingress = 0
	if ports[0].Enqueue(now, one); heard.report != now+1000 {
		t.Errorf("a packet exceeds B0 at %d, a multiple of the period, and a report is asked for %d; want "+
			"the next one", now, heard.report)
	}
	if got, told := heard.last[0]; told {
		t.Errorf("an idle port's sender was told %d", got)
	}
	for share := range uint16(FullRate) {
		rate, stage := float64(share+1)/FullRate, stageOf(share+1)
		if got := math.Pow(2, -float64(stage)); got > rate || got*2 <= rate && share+1 != FullRate {
			t.Fatalf("a share of %.6f is told as stage %d", rate, stage)
		}
	}
}

type shares struct {
	*spoken
	last map[int]uint16
	full int // how often FullRate was signalled
}

func (s *shares) Rate(ingress int, priority uint8, share uint16) {
	s.last[ingress] = share
	s.full += count(share == FullRate)
}
