package medium

import (
	"math"
	"math/big"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

func ratio(num, den uint64) units.Ratio { return units.Ratio{Num: num, Den: den} }

// near requires that a count of successes among n is within five standard deviations of its
// expectation for a probability.
func near(t *testing.T, what string, got, n int, p float64) {
	t.Helper()
	want, sigma := p*float64(n), math.Sqrt(p*(1-p)*float64(n))
	if math.Abs(float64(got)-want) > 5*sigma+1 {
		t.Errorf("%s: %d of %d, want %.0f +- %.0f", what, got, n, want, 5*sigma)
	}
}

// TestSerialiseLiteral has the times of IEEE 802.3: the smallest frame takes 672
// ns at 1 Gbit/s (1,488,095 frames/s), the largest 12,304 ns (81,274 frames/s),
// with preamble, check sequence and gap.
func TestSerialiseLiteral(t *testing.T) {
	for _, c := range []struct {
		rate     units.Rate
		overhead units.Bytes
		bytes    int
		want     time.Duration
	}{
		{1e9, 24, 60, 672},
		{1e9, 24, 1514, 12304},
		{10e6, 24, 60, 67200},
		{1e9, 0, 1500, 12000},
		{100e9, 0, 1250, 100},
		{0, 24, 1500, 0},
		{1, 0, 1 << 16, 1 << 19 * time.Second},
	} {
		m := New(plan.Direction{Rate: c.rate, Overhead: c.overhead}, 1)
		if got := m.Serialise(c.bytes); got != c.want {
			t.Errorf("%d bytes and %d at %s: got %d ns, want %d", c.bytes, c.overhead, c.rate, got, c.want)
		}
	}
}

// TestSerialiseNeverDrifts sends a million frames at rates that divide nothing:
// after each the sum is the exact time of all bits, rounded down.
func TestSerialiseNeverDrifts(t *testing.T) {
	for _, rate := range []units.Rate{999_999_937, 2_500_000_001, 7_000_003, 399_999_999_979, 1e9, 3} {
		m := New(plan.Direction{Rate: rate, Overhead: 24}, 1)
		var sum, bits big.Int
		var exact, nano big.Int
		nano.SetInt64(1e9)
		divisor := new(big.Int).SetUint64(uint64(rate))
		for i := range 1_000_000 {
			length := 60 + i*7919%1455
			sum.Add(&sum, exact.SetInt64(int64(m.Serialise(length))))
			bits.Add(&bits, exact.SetInt64(int64(length+24)*8))
			if i%997 != 0 && i != 999_999 {
				continue
			}
			if exact.Mul(&bits, &nano).Quo(&exact, divisor); exact.Cmp(&sum) != 0 {
				t.Fatalf("%d frames at %s take %s ns, want %s", i+1, rate, &sum, &exact)
			}
		}
	}
}

// TestSerialiseKeepsFractions changes the rate between frames: 1 bit at 3 bit/s
// leaves a third of a nanosecond over, and so it stays at 30 bit/s.
func TestSerialiseKeepsFractions(t *testing.T) {
	m := New(plan.Direction{Rate: 3e9}, 1)
	if got := m.Serialise(5); got != 13 { // 40 bits: 13 1/3 ns
		t.Fatalf("5 bytes at 3 Gbit/s: %d ns", got)
	}
	m.Set(plan.Direction{Rate: 30e9})
	if got := m.Serialise(5); got != 1 { // 1 1/3 + 1/3 = 1 2/3
		t.Fatalf("5 bytes at 30 Gbit/s: %d ns", got)
	}
	m.Set(plan.Direction{Rate: 3e9})
	if got := m.Serialise(5); got != 14 { // 13 1/3 + 2/3
		t.Fatalf("5 bytes at 3 Gbit/s again: %d ns", got)
	}
}

func TestDelay(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Delay: units.Duration(5 * time.Microsecond)}, 1)
	one := &packet.Packet{Data: make([]byte, 100), Flow: 1, Ordinal: 1}
	if got := m.Send(1000, one); got != (Transit{At: 6000, Again: clock.Never, Corrupt: -1}) {
		t.Errorf("got %+v", got)
	}
	// A shorter delay from now on does not let a packet overtake.
	m.Set(plan.Direction{Rate: 1e9, Delay: 1})
	if got := m.Send(1100, one).At; got != 6000 {
		t.Errorf("the next one arrives at %d, want 6000", got)
	}
	if got := m.Send(5999, one).At; got != 6000 {
		t.Errorf("the one after it arrives at %d, want 6000", got)
	}
	if got := m.Send(6000, one).At; got != 6001 {
		t.Errorf("the last arrives at %d, want 6001", got)
	}
}

// everything is a direction with every fault.
var everything = plan.Direction{
	Rate:       1e9,
	Delay:      10_000,
	Jitter:     2_000,
	JitterKind: spec.Normal,
	Loss:       ratio(1, 20),
	Duplicate:  ratio(1, 10),
	Corrupt:    ratio(1, 10),
	GilbertElliott: plan.GilbertElliott{Enter: ratio(1, 50), Leave: ratio(1, 4), Loss: ratio(9, 10),
		LossGood: ratio(1, 200)},
	DropEvery: 37, DropList: []uint64{3, 5, 8}, Reorder: ratio(1, 10), ReorderBy: 50_000,
}

// fate is a packet's outcome, without its time of sending.
type fate struct {
	reason      feed.Reason
	took, again clock.Time
	corrupt     int
}

func send(m *Medium, now clock.Time, flow, ordinal uint64) fate {
	got := m.Send(now, &packet.Packet{Data: make([]byte, 1000), Flow: flow, Ordinal: ordinal})
	f := fate{reason: got.Reason, corrupt: got.Corrupt, again: got.Again}
	if got.Reason == Arrives {
		f.took = got.At - now
	}
	if got.Again != clock.Never {
		f.again -= now
	}
	return f
}

// TestFlowMeetsTheSameFaults sends a flow alone, and among others that come and
// go in another order, on a medium that was set again: each packet's fate is the
// same. Packets are far enough apart not to wait for each other.
func TestFlowMeetsTheSameFaults(t *testing.T) {
	const packets = 20_000
	alone := New(everything, Seed(7, "a--b", true))
	want := make([]fate, packets)
	reasons := map[feed.Reason]int{}
	for i := range want {
		want[i] = send(alone, clock.Time(i)*1e6, 42, uint64(i+1))
		reasons[want[i].reason]++
	}
	for _, reason := range []feed.Reason{Arrives, feed.Loss, feed.Burst, feed.Nth} {
		if reasons[reason] < 100 {
			t.Fatalf("too few packets of reason %d: %v", reason, reasons)
		}
	}
	among := New(plan.Direction{Rate: 1e9, Loss: ratio(1, 2)}, Seed(7, "a--b", true))
	among.Set(everything)
	now, other := clock.Time(0), uint64(0)
	for i := range want {
		for k := range i * 7919 % 5 {
			other++
			now += 1e6
			send(among, now, uint64(100+k), other)
		}
		now += 1e6
		if got := send(among, now, 42, uint64(i+1)); got != want[i] {
			t.Fatalf("packet %d among others: %+v, alone %+v", i+1, got, want[i])
		}
	}
	// Other flows, links, directions and seeds meet other faults.
	for what, m := range map[string]*Medium{
		"another link":        New(everything, Seed(7, "a--c", true)),
		"the other direction": New(everything, Seed(7, "a--b", false)),
		"another seed":        New(everything, Seed(8, "a--b", true)), "another flow": alone,
	} {
		same, both, n := 0, 0, 0
		flow := uint64(42)
		if m == alone {
			flow = 43
		}
		for i := range want {
			if got := send(m, clock.Time(i)*1e6+1e12, flow, uint64(i+1)); got.reason != feed.Nth {
				n++
				if got == want[i] {
					same++
				}
				if got.reason == feed.Loss && want[i].reason == feed.Loss {
					both++
				}
			}
		}
		if same > n/8 {
			t.Errorf("%s: %d of %d packets meet the same", what, same, n)
		}
		share := float64(reasons[feed.Loss]) / packets
		near(t, what+": lost on both", both, n, share*share)
	}
}

// TestSeedIsPinned checks the draws of a seed: a change of them changes every run of every file.
// The numbers are from this code itself. The other tests check that they are fair.
func TestSeedIsPinned(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Loss: ratio(1, 10)}, Seed(1, "leaf1--spine1", true))
	var lost []int
	for i := range 100 {
		if send(m, clock.Time(i), 1, uint64(i+1)).reason == feed.Loss {
			lost = append(lost, i+1)
		}
	}
	want := pinned
	if len(lost) != len(want) {
		t.Fatalf("lost %v, want %v", lost, want)
	}
	for i := range want {
		if lost[i] != want[i] {
			t.Fatalf("lost %v, want %v", lost, want)
		}
	}
}

func TestUniformLoss(t *testing.T) {
	for _, p := range []units.Ratio{ratio(1, 1000), ratio(1, 3), ratio(1, 1), ratio(999, 1000)} {
		m := New(plan.Direction{Rate: 1e9, Loss: p}, 1)
		const n = 300_000
		lost, after := 0, 0
		before := false
		for i := range n {
			now := send(m, clock.Time(i), uint64(i%3), uint64(i/3+1)).reason == feed.Loss
			if now {
				lost++
				if before {
					after++
				}
			}
			before = now
		}
		near(t, p.String()+" lost", lost, n, p.Float())
		near(t, p.String()+" lost after another", after, n-1, p.Float()*p.Float())
	}
}

func TestDropsByIndex(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, DropEvery: 4, DropList: []uint64{1, 7, 100}}, 1)
	for _, flow := range []uint64{5, 6} {
		for i := uint64(1); i <= 120; i++ {
			want := i%4 == 0 || i == 1 || i == 7 || i == 100
			if got := send(m, clock.Time(i), flow, i).reason; got != Arrives && got != feed.Nth ||
				(got == feed.Nth) != want {
				t.Errorf("flow %d, packet %d: reason %d, lost want %t", flow, i, got, want)
			}
		}
	}
}

// TestUnnumbered: pause frames are lost as often as others are, and by no index.
func TestUnnumbered(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Loss: ratio(1, 4), DropEvery: 1}, 1)
	const n = 100_000
	lost := 0
	for range n {
		switch got := send(m, 0, 0, 0).reason; got {
		case feed.Loss:
			lost++
		case feed.Nth:
			t.Fatal("a packet of no flow is lost by its index")
		}
	}
	near(t, "lost", lost, n, 0.25)
}

func TestCorruption(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Corrupt: ratio(1, 2)}, 3)
	const n, length = 200_000, 78 // 64 bytes behind the Ethernet header: 512 bits
	hit := 0
	var bits [512]int
	for i := range n {
		got := m.Send(0, &packet.Packet{Data: make([]byte, length), Flow: 9, Ordinal: uint64(i + 1)})
		if got.Corrupt < 0 {
			continue
		}
		hit++
		if got.Corrupt < 14*8 || got.Corrupt >= length*8 {
			t.Fatalf("bit %d of %d bytes", got.Corrupt, length)
		}
		bits[got.Corrupt-14*8]++
	}
	near(t, "corrupted", hit, n, 0.5)
	chi, want := 0.0, float64(hit)/512
	for _, c := range bits {
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	if math.Abs(chi-511) > 5*math.Sqrt(2*511) {
		t.Errorf("chi-square of the bits is %.0f, want 511 +- 160", chi)
	}
	for _, short := range []int{0, 13, 14} {
		if got := m.Send(0, &packet.Packet{Data: make([]byte, short), Flow: 9,
			Ordinal: 2}); got.Corrupt != -1 {
			t.Errorf("bit %d of %d bytes is corrupted", got.Corrupt, short)
		}
	}
}

func TestDuplication(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Delay: 500, Duplicate: ratio(1, 8)}, 3)
	const n = 100_000
	twice := 0
	for i := range n {
		got := send(m, clock.Time(i), 9, uint64(i+1))
		if got.again == clock.Never {
			continue
		}
		if twice++; got.again != got.took || got.took != 500 {
			t.Fatalf("arrives after %d and %d, want 500 both", got.took, got.again)
		}
	}
	near(t, "duplicated", twice, n, 1.0/8)
	if Twin(5) == 5 || Twin(5) == Twin(6) {
		t.Error("duplicates are no flows of their own")
	}
}

// TestReordering counts overtaken packets: 1,000 bytes take 8 us, so that a packet held back by 20
// us is overtaken by the next two.
func TestReordering(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Delay: 5_000, Reorder: ratio(1, 100), ReorderBy: 20_000}, 3)
	const n = 100_000
	held := 0
	last := clock.Time(0)
	for i := range n {
		sent := clock.Time(i) * 8_000
		switch took := send(m, sent, 9, uint64(i+1)).took; {
		case took == 25_000:
			held++
		case took != 5_000:
			t.Fatalf("packet %d takes %d", i, took)
		default:
			if sent+took < last {
				t.Fatalf("packet %d overtakes without being asked", i)
			}
			last = sent + took
		}
	}
	near(t, "held back", held, n, 0.01)
}

func TestFlap(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9, Flap: plan.Flap{Every: 1000, For: 100}}, 3)
	m.Begin(50)
	for _, c := range []struct {
		at   clock.Time
		up   bool
		next clock.Time
	}{
		{0, true, 1050}, {50, true, 1050}, {1049, true, 1050}, {1050, false, 1150}, {1149, false, 1150},
		{1150, true, 2050}, {2049, true, 2050}, {2050, false, 2150}, {1_000_050, false, 1_000_150},
		{1_000_150, true, 1_001_050},
	} {
		if got := m.Up(c.at); got != c.up {
			t.Errorf("at %d: up is %t", c.at, got)
		}
		if got := m.NextChange(c.at); got != c.next {
			t.Errorf("at %d: the next change is at %d, want %d", c.at, got, c.next)
		}
		want := Arrives
		if !c.up {
			want = feed.LinkDown
		}
		if got := m.Send(c.at, &packet.Packet{Data: make([]byte, 60), Ordinal: 1}).Reason; got != want {
			t.Errorf("at %d: reason %d, want %d", c.at, got, want)
		}
	}
	if steady := New(plan.Direction{}, 1); !steady.Up(1e18) || steady.NextChange(0) != clock.Never {
		t.Error("a link without a schedule changes")
	}
	if gone := New(plan.Direction{Flap: plan.Flap{Every: 10, For: 10}}, 1); !gone.Up(9) || gone.Up(10) ||
		gone.Up(1e9) || gone.NextChange(10) != clock.Never {
		t.Error("a link that is always down from its first fall on comes up")
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	m := New(everything, 1)
	one := &packet.Packet{Data: make([]byte, 1500), Flow: 77}
	if n := testing.AllocsPerRun(10_000, func() {
		one.Ordinal++
		m.Send(clock.Time(one.Ordinal), one)
		m.Serialise(1500)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkSend(b *testing.B) {
	for name, d := range map[string]plan.Direction{
		"delay": {Rate: 1e9, Delay: 5000}, "loss": {Rate: 1e9, Loss: ratio(1, 1000)},
		"everything": everything,
		"rare-long-bursts": {Rate: 1e9,
			GilbertElliott: plan.GilbertElliott{Enter: ratio(1, 100_000), Leave: ratio(1, 1000),
				Loss: ratio(1, 1)}},
	} {
		b.Run(name, func(b *testing.B) {
			m := New(d, 1)
			one := &packet.Packet{Data: make([]byte, 1500)}
			b.ReportAllocs()
			for i := range b.N {
				one.Flow, one.Ordinal = uint64(i%64), uint64(i/64+1)
				m.Serialise(1500)
				m.Send(clock.Time(i)*1000, one)
			}
		})
	}
}
