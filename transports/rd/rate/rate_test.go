package rate

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
)

// controllers are those with a window, over a link of 10 Gbit/s and a round trip of
// 20 us.
func controllers() map[string]Controller {
	o := NSCCOptions{Rate: 10_000_000_000, RoundTrip: 20 * time.Microsecond}
	return map[string]Controller{"nscc": NewNSCC(o), "learned": NewLearned(Trained(), o)}
}

// TestWindows checks random reports. The window stays between a packet and one and a half
// bandwidth-delay products, no controller sets a rate, and nothing is allocated.
func TestWindows(t *testing.T) {
	for name, c := range controllers() {
		r := rand.New(rand.NewPCG(1, 1))
		now := clock.Time(1)
		turn := func() {
			now = now.Add(time.Duration(r.Int64N(30_000)))
			a := Ack{Packets: r.IntN(9), Echoed: r.IntN(9), InFlight: r.IntN(40_000)}
			a.Bytes, a.Marked = a.Packets*4096, r.IntN(a.Echoed+1)
			if r.IntN(4) > 0 {
				a.Trip = 20*time.Microsecond + time.Duration(r.Int64N(int64(time.Millisecond)>>r.IntN(10)))
			}
			c.Wanted(now, 1000)
			c.Sent(now, 1000)
			c.Acked(now, a)
			if r.IntN(10) == 0 {
				c.Lost(now, Loss{Bytes: 4096, Trimmed: r.IntN(2) == 0})
			}
			got := c.Allowed(now)
			if most := 37_500; got.Window < 4096 || got.Window > most || got.Rate != 0 || got.From != 0 {
				t.Fatalf("%s: %+v", name, got)
			}
		}
		for range 20_000 {
			turn()
		}
		if n := testing.AllocsPerRun(1000, turn); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestNSCCReacts holds the four cases, and both ways of being told of too much, against
// what the constants say.
func TestNSCCReacts(t *testing.T) {
	const trip = 20 * time.Microsecond // BDP is 25,000 bytes, a is 1/6
	start := func(window float64) *NSCC {
		n := NewNSCC(NSCCOptions{Rate: 10_000_000_000, RoundTrip: trip})
		n.window = window
		n.adjusted, n.ends = 1, clock.Never
		return n
	}
	// round is a round trip of acknowledgements with a delay.
	round := func(n *NSCC, delay time.Duration, marked int) float64 {
		before := n.window
		n.Acked(n.adjusted.Add(trip), Ack{Packets: 1, Bytes: int(before), Echoed: 1, Marked: marked,
			Trip: trip + delay})
		return n.window - before
	}
	eta := 0.15 * 4096 / 6
	near := func(got, want float64) bool { return math.Abs(got-want) < 2 }
	// 4 packets a round trip, times a and b, by how far the delay is below; 20 us are aimed at.
	if got, want := round(start(12_000), 10*time.Microsecond, 0),
		4*4096./6*(20./12)*0.5+eta; !near(got, want) {
		t.Errorf("half of the delay: %v, want %v", got, want)
	}
	if got, want := round(start(12_000), 30*time.Microsecond, 0), 5*4096./6+eta; !near(got, want) {
		t.Errorf("more than the delay, without marks: %v, want %v", got, want)
	}
	if got := round(start(12_000), 10*time.Microsecond, 1); !near(got, eta) {
		t.Errorf("marks without delay: %v, want %v", got, eta)
	}
	n := start(24_000)
	n.average, n.shrunk = 80*time.Microsecond, -clock.Time(trip)
	if got, want := round(n, 80*time.Microsecond, 1), -24_000*0.5+eta; !near(got, want) {
		// 0.8 x 3/4 is more than a half
		t.Errorf("four times the delay: %v, want %v", got, want)
	}
	n = start(24_000)
	n.Lost(2, Loss{Bytes: 4096})
	if n.window != 24_000-4096 {
		t.Errorf("after a loss %v", n.window)
	}
	n.ends = 3 // the period ends: 8,000 bytes have come through
	n.achieved = 7000
	n.Acked(10, Ack{Packets: 1, Bytes: 1000, Echoed: 1, Trip: trip})
	if n.window != 8000 {
		t.Errorf("quick adapt to %v, want 8000", n.window)
	}
}

// TestPolicy holds that the trained weights are read, that others are refused, and
// that the network computes what its definition says.
func TestPolicy(t *testing.T) {
	p := Trained()
	if again, err := ReadPolicy(p.Bytes()); err != nil || *again != *p || !bytes.Equal(trained, p.Bytes()) {
		t.Errorf("read again: %v", err)
	}
	if _, err := ReadPolicy(trained[1:]); err == nil {
		t.Error("a byte less is read")
	}
	bad := slices.Clone(trained)
	copy(bad, []byte{0x7F, 0x80, 0, 0})
	if _, err := ReadPolicy(bad); err == nil {
		t.Error("an infinite weight is read")
	}
	// By the definition, with other loops and in other precision.
	in := [policyInputs]float32{0.5, 0.1, -0.3, 1, 0.2, -0.7, 0.9, 0}
	values := make([]float64, policyInputs)
	for i, x := range in {
		values[i] = float64(x)
	}
	at := 0
	for _, size := range []int{policyHidden, policyHidden, policyOutputs} {
		next := make([]float64, size)
		for neuron := range next {
			weights := p[at+neuron*(len(values)+1):]
			sum := float64(weights[0])
			for i, v := range values {
				sum += float64(weights[1+i]) * v
			}
			next[neuron] = math.Tanh(sum)
		}
		at += size * (len(values) + 1)
		values = next
	}
	out := p.ask(&in)
	for i, want := range values {
		if math.Abs(float64(out[i])-want) > 1e-4 {
			t.Errorf("output %d is %v, want %v", i, out[i], want)
		}
	}
	if at != policyWeights {
		t.Errorf("%d weights, want %d", at, policyWeights)
	}
}

// TestPhased holds which rate holds when: phases take turns from the epoch on, nothing
// begins in the guard before a phase ends, and before the epoch all wait for it.
func TestPhased(t *testing.T) {
	const ms = clock.Time(time.Millisecond)
	p := Phased{Rates: []uint64{10, 0, 30}, Each: 100 * time.Millisecond, Epoch: 1000 * ms,
		Guard: 5 * time.Millisecond}
	for at, want := range map[clock.Time]Allowance{
		0:                 {Rate: 10, From: 1000 * ms},
		1000*ms - 1:       {Rate: 10, From: 1000 * ms},
		1000 * ms:         {Rate: 10, From: 1000 * ms},
		1095 * ms:         {Rate: 10, From: 1095 * ms},
		1095*ms + 1:       {Rate: 30, From: 1200 * ms}, // behind its guard, and the next has none
		1150 * ms:         {Rate: 30, From: 1200 * ms},
		1295*ms + 1:       {Rate: 10, From: 1300 * ms},
		1000*ms + 3000*ms: {Rate: 10, From: 4000 * ms},
		1000*ms + 3250*ms: {Rate: 30, From: 4250 * ms},
	} {
		if got := p.Allowed(at); got != want {
			t.Errorf("at %v: %+v, want %+v", time.Duration(at), got, want)
		}
	}
	p.Rates = []uint64{0, 0}
	if got := p.Allowed(1000 * ms); got.From != clock.Never {
		t.Errorf("without any rate: %+v", got)
	}
	if got := (&Phased{}).Allowed(5); got != (Allowance{}) {
		t.Errorf("without phases: %+v", got)
	}
}

// TestNames holds that names are read as they are written.
func TestNames(t *testing.T) {
	for i, name := range kindNames {
		if k, err := Parse(name); err != nil || k != Kind(i) || k.String() != name {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
	if _, err := Parse("fast"); err == nil {
		t.Error("a name that is none was read")
	}
	if Kind(200).String() != "unknown" {
		t.Error("a kind that is none has a name")
	}
}
