package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/fabric/units"
	"railbed/testbed/plan"
	"railbed/testbed/verdict"
)

// Levels of fidelity, best first.
const (
	Faithful   = "faithful"
	Degraded   = "degraded"
	Overloaded = "overloaded"
)

var levels = []string{Faithful, Degraded, Overloaded}

// The numbers that define fidelity by packets. A run is faithful when it
// crosses no first limit, and overloaded when it crosses a second one.
//
//	measured                                                   degraded above   overloaded above
//	a link direction's busiest 10 ms or 100 ms, over asked     +1 %             +10 %
//	packets that the capture lost, of all                      0                1 %
//	time in which a task waited for a CPU                      90 %             never alone
//	CPU time that the hypervisor took                          5 %              25 %
//
// A shaper may let a burst pass at once: max(2 MTU, asked rate x 200 us), and a
// window may hold one frame more than its part; both are taken off before a
// window is compared. A link that carries less than asked is reported where it
// was busy, and is no fault by itself: packets do not show whether more was
// offered.
const (
	overDegraded     = 0.01
	overOverloaded   = 0.10
	lostDegraded     = 0.0
	lostOverloaded   = 0.01
	pressureDegraded = 0.90
	stealDegraded    = 0.05
	stealOverloaded  = 0.25

	// busyShare of the asked rate, over a long window, makes a link busy.
	busyShare = 0.5

	burstTime = 200 * time.Microsecond
	burstMTUs = 2

	binWidth  = int64(time.Millisecond)
	shortBins = 10
	longBins  = 100
)

// HostLoad is what the host said about itself while the capture was made.
// Values below zero are not known.
type HostLoad struct {
	// Pressure is the share of time in which a runnable task waited for a CPU
	// (PSI "some"), 0 to 1.
	Pressure float64
	// Steal is the share of CPU time that the hypervisor gave to others.
	Steal float64
}

// Fidelity compares what every link carried with what it was asked to carry.
type Fidelity struct {
	accept  string
	load    HostLoad
	capture *Capture
	meters  [][2]*meter // by tap index: in, out
	level   int
}

// NewFidelity makes the check. accept is the worst level that passes, Faithful
// or Degraded.
func NewFidelity(accept string, load HostLoad) *Fidelity {
	return &Fidelity{accept: accept, load: load}
}

// Level is the verdict in FIDELITY.md's words, once Result was called.
func (k *Fidelity) Level() string { return levels[k.level] }

// Begin implements Check.
func (k *Fidelity) Begin(c *Capture) { k.capture = c }

// Packet implements Check.
func (k *Fidelity) Packet(p *Packet) {
	if p.Direction == Unknown || p.Drop != "" {
		return
	}
	for len(k.meters) <= p.Tap.Index {
		k.meters = append(k.meters, [2]*meter{})
	}
	slot := &k.meters[p.Tap.Index][p.Direction-In]
	if *slot == nil {
		*slot = new(meter)
	}
	(*slot).add(p.Time, p.Length)
}

// meter finds the busiest windows of one direction at one tap. It keeps the
// last hundred milliseconds.
type meter struct {
	bins           [longBins]uint64
	bin            int64 // the millisecond that is filled
	short, long    uint64
	mostShort      uint64 // bytes of the busiest 10 ms
	mostLong       uint64 // bytes of the busiest 100 ms
	bytes, packets uint64
	longest        int
}

func (m *meter) add(now int64, length int) {
	bin := now / binWidth
	if m.packets == 0 {
		m.bin = bin
	}
	m.advance(bin)
	m.bins[place(m.bin)] += uint64(length)
	m.short += uint64(length)
	m.long += uint64(length)
	m.mostShort, m.mostLong = max(m.mostShort, m.short), max(m.mostLong, m.long)
	m.bytes += uint64(length)
	m.packets++
	m.longest = max(m.longest, length)
}

// advance moves the windows on. A packet that comes late is counted in the
// present millisecond.
func (m *meter) advance(bin int64) {
	if bin-m.bin >= longBins {
		clear(m.bins[:])
		m.short, m.long, m.bin = 0, 0, bin
		return
	}
	for m.bin < bin {
		m.bin++
		m.short -= m.bins[place(m.bin-shortBins)]
		m.long -= m.bins[place(m.bin)] // the millisecond a hundred before
		m.bins[place(m.bin)] = 0
	}
}

// place of a millisecond in the bins; times before 1970 are negative.
func place(bin int64) int64 { return (bin%longBins + longBins) % longBins }

// carried is one direction of a link and what it carried.
type carried struct {
	link, from, to string
	asked          units.Rate // in real time
	mtu            int
	meter          *meter
}

// rate of a window in bit/s.
func rate(bytes uint64, bins int64) float64 {
	return float64(bytes) * 8 / (float64(bins*binWidth) / 1e9)
}

// over is by how much the busiest windows pass what a shaper may let through,
// as a share of the asked rate.
func (c carried) over() float64 {
	allowance := max(float64(burstMTUs*(c.mtu+etherHeader)), float64(c.asked)/8*burstTime.Seconds()) + float64(c.meter.longest)
	share := func(bytes uint64, bins int64) float64 {
		return (float64(bytes)-allowance)/(float64(c.asked)/8*float64(bins*binWidth)/1e9) - 1
	}
	return max(share(c.meter.mostShort, shortBins), share(c.meter.mostLong, longBins))
}

func (c carried) busy() float64 { return rate(c.meter.mostLong, longBins) / float64(c.asked) }

// directions pairs the plan's link directions with the best tap of each: the
// sending end, where the kernel stamps behind the shaper, or the other one.
func (k *Fidelity) directions() (all []carried, missing int) {
	for i := range k.capture.Plan.Links {
		link := &k.capture.Plan.Links[i]
		for _, d := range []struct {
			from, to plan.End
			set      plan.Direction
		}{{link.A, link.B, link.AToB}, {link.B, link.A, link.BToA}} {
			c := carried{
				link: link.Name, from: d.from.Node + ":" + d.from.Port, to: d.to.Node + ":" + d.to.Port,
				asked: d.set.Rate / units.Rate(k.capture.Dilation), mtu: link.MTU,
			}
			if sender := k.capture.Tap(d.from.Node, d.from.Port); sender != nil {
				c.meter = k.meter(sender, Out)
			} else if receiver := k.capture.Tap(d.to.Node, d.to.Port); receiver != nil {
				c.meter = k.meter(receiver, In)
			} else {
				missing++
			}
			if c.meter != nil && c.asked > 0 {
				all = append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y carried) int { return cmp.Compare(y.busy(), x.busy()) })
	return all, missing
}

func (k *Fidelity) meter(tap *Tap, d Direction) *meter {
	if tap.Index >= len(k.meters) {
		return nil
	}
	return k.meters[tap.Index][d-In]
}

// Result implements Check.
func (k *Fidelity) Result() Result {
	r := Result{Name: "fidelity", Measured: map[string]float64{}}
	var reasons, unclear []string
	against := func(value, degraded, overloaded float64, line string) {
		if value <= degraded {
			return
		}
		reasons = append(reasons, line)
		k.level = max(k.level, 1)
		if value > overloaded {
			k.level = 2
		}
	}
	busy, links := 0, 0
	if k.capture.Plan == nil {
		unclear = append(unclear, "without a plan the asked rates are not known")
	} else {
		all, missing := k.directions()
		links = len(all)
		if missing > 0 {
			unclear = append(unclear, fmt.Sprintf("%d link directions were not captured", missing))
		}
		worst := 0.0
		for _, c := range all {
			over := c.over()
			worst = max(worst, over)
			against(over, overDegraded, overOverloaded, fmt.Sprintf("%s > %s carried %+.1f%% more than %s", c.from, c.to, over*100, c.asked))
			if c.busy() >= busyShare {
				busy++
				r.Measured["rate."+c.from] = rate(c.meter.mostLong, longBins)
				r.Details = append(r.Details, fmt.Sprintf("%s > %s: %.1f Mbit/s over the busiest 100 ms, %.1f Mbit/s over the busiest 10 ms, asked %s",
					c.from, c.to, rate(c.meter.mostLong, longBins)/1e6, rate(c.meter.mostShort, shortBins)/1e6, c.asked))
			}
		}
		r.Measured["over"] = worst
		if links == 0 {
			unclear = append(unclear, "no packet on a link of known rate")
		}
	}
	k.host(against, r.Measured)
	r.Measured["busy-links"] = float64(busy)
	r.Summary = fmt.Sprintf("%s: %d of %d link directions with traffic were busy", k.Level(), busy, links)
	k.capture.conclude(&r, k.capture.Taps, nil, unclear)
	r.Details = append(reasons, r.Details...)
	if k.level > max(0, slices.Index(levels, k.accept)) {
		r.Verdict = verdict.Fail
		if k.level == 2 {
			r.Verdict = verdict.Overloaded
		}
	}
	return r
}

// host judges capture losses and the load of the host.
func (k *Fidelity) host(against func(value, degraded, overloaded float64, line string), measured map[string]float64) {
	var lost uint64
	for _, tap := range k.capture.Taps {
		lost += tap.Lost
	}
	share := float64(lost) / max(1, float64(lost+k.capture.Packets))
	measured["lost"] = float64(lost)
	against(share, lostDegraded, lostOverloaded, fmt.Sprintf("the capture lost %d of %d packets", lost, lost+k.capture.Packets))
	if k.load.Pressure >= 0 {
		measured["pressure"] = k.load.Pressure
		against(k.load.Pressure, pressureDegraded, 2, fmt.Sprintf("tasks waited for a CPU in %.0f%% of the time", k.load.Pressure*100))
	}
	if k.load.Steal >= 0 {
		measured["steal"] = k.load.Steal
		against(k.load.Steal, stealDegraded, stealOverloaded, fmt.Sprintf("the hypervisor took %.0f%% of the CPU time", k.load.Steal*100))
	}
}
