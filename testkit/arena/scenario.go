package arena

import (
	"math/rand/v2"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/rate"
)

// Scenario is a finite load: an incast, or an all-to-all. Messages is required.
type Scenario struct {
	Name string
	Options
	// Senders is the number of hosts that send to host 0, Messages each. 0 is an all-to-all of
	// Hosts by shifts.
	Senders  int
	Messages int
	// Bytes is the length of a message. In an all-to-all, lengths are 0.5 to 1.5 times Bytes.
	// Default 64 KiB.
	Bytes int
	// AtOnce is the number of messages that a host has in flight. Default 2.
	AtOnce int
	// LeastTarget is rate.NSCCOptions.LeastTarget.
	LeastTarget time.Duration
	// Spread bounds the time between the begin of the first host and of the last.
	Spread time.Duration
}

// Outcome is the result of a scenario.
type Outcome struct {
	// Time is the time until the last message arrived. Ideal is the least time that the busiest
	// link needs.
	Time, Ideal time.Duration
	// P99 is the 99th percentile of the messages' times.
	P99 time.Duration
	// Repeated is the number of retransmissions for each packet first sent.
	Repeated float64
	// Depth is the mean depth that packets found in the switch's queues, and Deepest the maximum,
	// in BDP.
	Depth, Deepest float64
}

// Score is the measure that training maximizes: speed, without retransmissions and with short
// queues. 1 is best.
func (o Outcome) Score() float64 {
	return float64(o.Ideal)/float64(o.Time) - o.Repeated/2 - o.Depth/20
}

// Training returns the scenarios in which policies are trained, with a seed.
func Training(seed uint64) []Scenario {
	ten := func(trim bool) Options { return fabric(seed, 10_000_000_000, 3*time.Microsecond, trim) }
	return append([]Scenario{
		{Name: "incast of 2", Options: ten(true), Senders: 2, Messages: 8},
		{Name: "incast of 5", Options: ten(false), Senders: 5, Messages: 5},
		{Name: "incast of 10", Options: ten(true), Senders: 10, Messages: 4},
		{Name: "incast of 14", Options: ten(true), Senders: 14, Messages: 3, Bytes: 90_000},
		{Name: "one alone", Options: ten(true), Senders: 1, Messages: 10},
		{Name: "late comers", Options: ten(false), Senders: 4, Messages: 6, Spread: 300 * time.Microsecond},
		{Name: "all-to-all of 6", Options: hosts(ten(true), 6), Messages: 1, AtOnce: 3},
	}, emulated(seed, 50_000_000, 300*time.Microsecond)...)
}

// emulated returns scenarios as ranks of a testbed have them: round trips of milliseconds, of which a part
// are delays of hosts that share few processors.
func emulated(seed, rate uint64, delay time.Duration) []Scenario {
	o := late(fabric(seed, rate, delay, false))
	return []Scenario{
		{Name: "emulated pair", Options: o, Senders: 1, Messages: 8, LeastTarget: leastTarget},
		{Name: "emulated incast", Options: o, Senders: 3, Messages: 3, LeastTarget: leastTarget},
		{Name: "emulated all-to-all", Options: hosts(o, 4), Messages: 1, AtOnce: 3, LeastTarget: leastTarget},
	}
}

// leastTarget is the minimum of the target delay of ranks of a testbed.
const leastTarget = 250 * time.Microsecond

// late gives hosts delays of up to three times a link's.
func late(o Options) Options {
	o.Jitter = 3 * o.Delay
	return o
}

// HeldOut returns the scenarios that training does not use. They have other numbers of hosts, other
// rates and delays, other sizes, and jitter.
func HeldOut(seed uint64) []Scenario {
	return []Scenario{
		{Name: "held-out-incast", Options: fabric(seed, 25_000_000_000, 2*time.Microsecond, true),
			Senders: 16, Messages: 6, Bytes: 100_000},
		{Name: "held-out-drops", Options: fabric(seed, 25_000_000_000, 5*time.Microsecond, false), Senders: 7,
			Messages: 12, Bytes: 150_000},
		{Name: "held-out-all-to-all", Options: hosts(
			jitter(fabric(seed, 5_000_000_000, 4*time.Microsecond, true)), 12), Messages: 1, AtOnce: 4},
		{Name: "held-out-emulated", Options: late(fabric(seed, 20_000_000, time.Millisecond, false)),
			Senders: 5, Messages: 2, LeastTarget: leastTarget},
	}
}

// fabric is a switch with the settings of the Ultra Ethernet specification: marks from 0.2 to 0.8
// of the bandwidth-delay product on, a buffer of 5.
func fabric(seed, rate uint64, delay time.Duration, trim bool) Options {
	o := Options{Seed: seed, Rate: rate, Delay: delay, Trim: trim}
	o.MarkFrom, o.MarkAll, o.Buffer = o.BDP()/5, o.BDP()*4/5, 5*o.BDP()
	return o
}

func hosts(o Options, n int) Options {
	o.Hosts = n
	return o
}

func jitter(o Options) Options {
	o.Jitter = 4 * time.Microsecond
	return o
}

// Play runs a scenario under a mode of control; nil is line rate.
func (s Scenario) Play(control func(rate.NSCCOptions) rate.Controller) Outcome {
	if s.Bytes == 0 {
		s.Bytes = 64 << 10
	}
	if s.AtOnce == 0 {
		s.AtOnce = 2
	}
	if s.Senders > 0 {
		s.Hosts = s.Senders + 1
	}
	if control != nil {
		knows := rate.NSCCOptions{Rate: s.Rate, Trimming: s.Trim, RoundTrip: s.RoundTrip(),
			LeastTarget: s.LeastTarget}
		s.Control = func(int, int) rate.Controller { return control(knows) }
	}
	w := new(s.Options)
	p := &play{Scenario: s, world: w, random: rand.New(rand.NewPCG(s.Seed, 7))}
	p.load()
	for p.left > 0 && w.now < clock.Time(time.Second) {
		w.Run(100 * time.Microsecond)
	}
	if p.left > 0 {
		p.end = w.now
	}
	return p.outcome()
}

type play struct {
	Scenario
	world  *World
	random *rand.Rand
	left   int
	end    clock.Time
	times  []time.Duration
	to     []int // bytes, by host
}

// load makes each host send its messages, AtOnce at a time.
func (p *play) load() {
	p.to = make([]int, p.Hosts)
	for n, h := range p.world.Hosts {
		var plan [][2]int // to, bytes
		switch {
		case p.Senders > 0 && n > 0:
			for range p.Messages {
				plan = append(plan, [2]int{0, p.Bytes})
			}
		case p.Senders == 0:
			for shift := 1; shift < p.Hosts; shift++ {
				for range p.Messages {
					plan = append(plan, [2]int{(n + shift) % p.Hosts, p.Bytes/2 + p.random.IntN(p.Bytes)})
				}
			}
		}
		p.left += len(plan)
		for _, m := range plan {
			p.to[m[0]] += m[1]
		}
		var next func()
		next = func() {
			if len(plan) == 0 {
				return
			}
			m, began := plan[0], p.world.now
			plan = plan[1:]
			h.Post(m[0], m[1], func() {
				p.times = append(p.times, p.world.now.Sub(began))
				if p.left--; p.left == 0 {
					p.end = p.world.now
				}
				next()
			})
		}
		at := clock.Time(0)
		if p.Spread > 0 {
			at = at.Add(time.Duration(p.random.Int64N(int64(p.Spread))))
		}
		p.world.At(at, func() {
			for range p.AtOnce {
				next()
			}
		})
	}
}

func (p *play) outcome() Outcome {
	o := Outcome{Time: p.end.Sub(1)}
	var sent, again, packets, depths uint64
	deepest := 0
	for _, h := range p.world.Hosts {
		c := h.Engine.Counters()
		sent, again = sent+c.Sent, again+c.Repeated
		packets, depths = packets+h.Port.Packets+h.Port.Full, depths+h.Port.DepthSum
		deepest = max(deepest, h.Port.Deepest)
	}
	busiest := slices.Max(p.to)
	frames := (busiest + p.world.Payload - 1) / p.world.Payload
	o.Ideal = time.Duration(float64(busiest+frames*(wire.RDDataLen+frame)) * 8e9 / float64(p.Rate))
	slices.Sort(p.times)
	if len(p.times) > 0 {
		o.P99 = p.times[(len(p.times)*99+99)/100-1]
	}
	bdp := float64(p.BDP())
	o.Repeated = float64(again) / float64(max(sent, 1))
	o.Depth, o.Deepest = float64(depths)/float64(max(packets, 1))/bdp, float64(deepest)/bdp
	return o
}
