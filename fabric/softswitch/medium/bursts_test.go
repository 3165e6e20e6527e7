package medium

import (
	"math"
	"testing"

	"railbed/fabric/softswitch/draw"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/plan"
)

// TestGilbertElliott compares the chain with its closed formulas (Gilbert 1960, Elliott 1963), with
// p = enter and r = leave. The share of packets in the bad state is p/(p+r), and the loss is each
// state's loss weighted by its share. A stay in the bad state has 1/r packets on average, with a
// geometric distribution. The correlation of the states of neighbours is 1-p-r.
func TestGilbertElliott(t *testing.T) {
	for _, g := range []plan.GilbertElliott{
		{Enter: ratio(1, 100), Leave: ratio(1, 10), Loss: ratio(1, 1)},
		{Enter: ratio(1, 1000), Leave: ratio(1, 50), Loss: ratio(1, 2), LossGood: ratio(1, 1000)},
		{Enter: ratio(3, 10), Leave: ratio(9, 10), Loss: ratio(1, 1)}, // p + r over 1
		{Enter: ratio(1, 4), Leave: ratio(3, 4), Loss: ratio(1, 1)},   // without memory
		{Enter: ratio(1, 1), Leave: ratio(1, 1), Loss: ratio(1, 1)},   // every other one
	} {
		checkChain(t, g)
	}
}

func checkChain(t *testing.T, g plan.GilbertElliott) {
	t.Helper()
	const flows, length = 20, 50_000
	const n = flows * length
	p, r := g.Enter.Float(), g.Leave.Float()
	m := New(plan.Direction{Rate: 1e9, GilbertElliott: g}, 11)
	lost, bad, bursts, both, long := 0, 0, 0, 0, 0
	for flow := range uint64(flows) {
		run, before := 0, false
		for i := uint64(1); i <= length; i++ {
			if send(m, clock.Time(i), flow, i).reason == feed.Burst {
				lost++
			}
			now := m.bursts.state(draw.Pair(11, flow), i)
			if now {
				bad++
				if before {
					both++
				}
				run++
			} else if before {
				bursts++
				if float64(run) > 1/r {
					long++
				}
				run = 0
			}
			before = now
		}
	}
	share := p / (p + r)
	// Neighbours are correlated: the share's variance is the variance of independent draws times
	// (1+c)/(1-c) for a correlation c.
	c := 1 - p - r
	sigma := math.Sqrt(share*(1-share)/n*(1+c)/math.Max(1-c, 1e-9)) + 1e-4
	within := func(what string, got, want, by float64) {
		t.Helper()
		if math.Abs(got-want) > by {
			t.Errorf("%+v: %s is %.5f, want %.5f +- %.5f", g, what, got, want, by)
		}
	}
	within("share of bad", float64(bad)/n, share, 5*sigma)
	within("loss", float64(lost)/n, share*g.Loss.Float()+(1-share)*g.LossGood.Float(), 6*sigma)
	mean := float64(bad) / float64(bursts)
	within("mean burst", mean, 1/r, 5*math.Sqrt(1-r)/r/math.Sqrt(float64(bursts))+0.001)
	within("chance to stay bad", float64(both)/float64(bad), 1-r, 5*math.Sqrt(r*(1-r)/float64(bad))+0.001)
	// A geometric stay exceeds k packets with the probability (1-r)^k.
	within("bursts over the mean", float64(long)/float64(bursts), math.Pow(1-r, math.Floor(1/r)),
		5*math.Sqrt(0.25/float64(bursts)))
}

// TestChainIsAFunctionOfThePacket requests states in every order, with and without the cache: they
// equal the states of a walk from the first packet.
func TestChainIsAFunctionOfThePacket(t *testing.T) {
	for _, g := range []plan.GilbertElliott{
		{Enter: ratio(1, 100), Leave: ratio(1, 10)}, {Enter: ratio(9, 10), Leave: ratio(8, 10)},
		{Enter: ratio(1, 3000), Leave: ratio(1, 2000)},
	} {
		const n = 3*epochPackets + 1000
		walked := make([]bool, n)
		b := newBursts(g)
		changes := 0
		for i := 1; i < n; i++ {
			x := of(draw.Nth(5, uint64(i)), forState)
			switch {
			case i%epochPackets == 0:
				walked[i] = b.stationary.Happens(of(draw.Nth(5, uint64(i)), forEpoch))
			case walked[i-1]:
				walked[i] = !draw.NewChance(g.Leave).Happens(^x)
			default:
				walked[i] = draw.NewChance(g.Enter).Happens(x)
			}
			if walked[i] != walked[i-1] {
				changes++
			}
		}
		if changes < 50 {
			t.Fatalf("%+v: the state changes %d times: too few to tell", g, changes)
		}
		for k := range 20_000 {
			i := uint64(k*104729%(n-1) + 1)
			if k%3 == 0 {
				b = newBursts(g) // remembers nothing
			}
			if got := b.state(5, i); got != walked[i] {
				t.Fatalf("%+v: packet %d is %t, want %t", g, i, got, walked[i])
			}
		}
		for i := 1; i < n; i++ {
			if got := b.state(5, uint64(i)); got != walked[i] {
				t.Fatalf("%+v: packet %d in order is %t, want %t", g, i, got, walked[i])
			}
		}
	}
}

func TestChainThatNeverLeaves(t *testing.T) {
	m := New(plan.Direction{Rate: 1e9,
		GilbertElliott: plan.GilbertElliott{Enter: ratio(1, 10), Loss: ratio(1, 1)}}, 1)
	lost := false
	for i := uint64(1); i < 2*epochPackets; i++ {
		now := send(m, 0, 3, i).reason == feed.Burst
		if lost && !now {
			t.Fatalf("packet %d of a flow in the bad state for good arrives", i)
		}
		lost = now
	}
	if !lost {
		t.Error("nothing is lost")
	}
}
