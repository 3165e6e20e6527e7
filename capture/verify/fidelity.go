package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/verdict"
)

// Levels of fidelity, best first.
const (
	Faithful   = "faithful"
	Degraded   = "degraded"
	Overloaded = "overloaded"
)

var levels = []string{Faithful, Degraded, Overloaded}

// busyShare is the share of the configured rate, over the busiest interval, from which on a link
// gets a line.
const busyShare = 0.5

// HostLoad is the host's load while the capture was made, as the host reported it. Negative values
// mean unknown.
type HostLoad struct {
	// Pressure is the share of time in which a runnable task waited for a CPU
	// (PSI "some"), 0 to 1.
	Pressure float64
	// Steal is the share of CPU time that the hypervisor gave to other guests.
	Steal float64
}

// Fidelity compares the rate that every link carried with its configured rate, over intervals of
// RateInterval in which the link was busy. Package scenarios/runner has the same rule, but reads
// counters instead of packets. Soft switches record how much waits in queues. Packets at
// kernel switches do not show whether more traffic was offered, so there the check finds only a
// link that carries too much. It also judges the lateness that soft switches recorded.
type Fidelity struct {
	accept  string
	load    HostLoad
	capture *evidence.Capture
	meters  evidence.Slots[[2]*meter] // by tap: in, out
	asked   asked
	hits    hits
	late    lateness
	level   int
}

// NewFidelity makes the check. accept is the worst level that passes, Faithful
// or Degraded.
func NewFidelity(accept string, load HostLoad) *Fidelity {
	return &Fidelity{accept: accept, load: load}
}

// Level returns the level of fidelity as FIDELITY.md names it. It is valid after Result was called.
func (k *Fidelity) Level() string { return levels[k.level] }

// Begin implements Check.
func (k *Fidelity) Begin(c *evidence.Capture) {
	k.capture, k.hits, k.late = c, newHits(), newLateness(c)
}

// Event implements Watcher.
func (k *Fidelity) Event(p *evidence.Packet) {
	if p.Fault != "" {
		k.hit(p)
	}
}

// Packet implements Check.
func (k *Fidelity) Packet(p *evidence.Packet) {
	switch {
	case p.Drop != "" && p.Fault != "":
		k.hit(p)
		return
	case p.Direction == evidence.Unknown || p.Drop != "",
		p.Direction == evidence.In && k.hits.has(p.ID, p.Tap):
		return
	}
	k.at(p.Tap, p.Direction).add(p)
	if p.Control() {
		k.at(p.Tap, evidence.Out+evidence.In-p.Direction).control(p.Verdict)
	}
	if p.Direction == evidence.Out && p.Timed && !p.Tap.NIC {
		k.late.add(time.Duration(p.Time - p.Due))
	}
}

// at returns the meter of a tap and a direction.
func (k *Fidelity) at(tap *evidence.Tap, d evidence.Direction) *meter {
	slot := &k.meters.At(tap.Index)[d-evidence.In]
	if *slot == nil {
		*slot = newMeter(k.capture, tap, d)
		(*slot).excepted = k.excepted(tap, d)
	}
	return *slot
}

// Result implements Check.
func (k *Fidelity) Result() evidence.Result {
	r := evidence.Result{Name: "fidelity", Measured: map[string]float64{}}
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
		all, missing := k.Rates()
		links = len(all)
		if missing > 0 {
			unclear = append(unclear, fmt.Sprintf(
				"%d link directions were not captured, or without the packets that faults hit", missing))
		}
		worst := 0.0
		for _, rate := range all {
			if rate.Achieved > 0 {
				off := rate.Achieved - 1
				if math.Abs(off) > math.Abs(worst) {
					worst = off
				}
				against(math.Abs(off), RateDegraded, RateOverloaded,
					fmt.Sprintf("%s > %s: %.1f Mbit/s instead of %s while busy (%+.1f%%, limit %.0f%%)",
						rate.From, rate.To, rate.Achieved*float64(rate.Asked)/1e6, rate.Asked, off*100,
						RateDegraded*100))
			}
			if rate.Unjudged {
				r.Details = append(r.Details, fmt.Sprintf("%s > %s: its rate is not judged: the file's "+
					"settings or faults change it, or the times of its packets", rate.From, rate.To))
				continue
			}
			if rate.Achieved > 0 || rate.Busiest >= busyShare*float64(rate.Asked) {
				busy++
				r.Measured["rate."+rate.From] = rate.Busiest
				r.Details = append(r.Details, fmt.Sprintf(
					"%s > %s: %.1f Mbit/s over the busiest %v, asked %s; busy in %d such intervals",
					rate.From, rate.To, rate.Busiest/1e6, RateInterval, rate.Asked, rate.Busy))
			}
		}
		r.Measured["off"] = worst
		if links == 0 {
			unclear = append(unclear, "no packet on a link of known rate")
		}
		k.lateness(against, r.Measured)
	}
	k.host(against, r.Measured)
	r.Measured["busy-links"] = float64(busy)
	r.Summary = fmt.Sprintf("%s by rates, losses and recorded lateness: %d of %d link directions with "+
		"traffic were busy", k.Level(), busy, links)
	k.capture.Conclude(&r, evidence.Need{Ports: k.capture.Recorded()}, evidence.Finding{Unclear: unclear})
	r.Details = append(reasons, r.Details...)
	if k.level > max(0, slices.Index(levels, k.accept)) {
		r.Verdict = verdict.Fail
		if k.level == 2 {
			r.Verdict = verdict.Overloaded
		}
	}
	return r
}

// lateness judges the frames that soft switches sent late.
func (k *Fidelity) lateness(against func(value, degraded, overloaded float64, line string),
	measured map[string]float64) {
	smallest := k.smallest()
	if smallest == 0 {
		return
	}
	limit := LateLimit(smallest) * time.Duration(k.capture.Dilation)
	share := k.late.beyond(limit)
	measured["late"] = share
	against(share, LateOverloaded, LateOverloaded, fmt.Sprintf(
		"soft switches sent %.1f%% of the frames more than %v late (limit %.0f%%)", share*100, limit,
		LateOverloaded*100))
}

// host judges capture losses and the load of the host.
func (k *Fidelity) host(against func(value, degraded, overloaded float64, line string),
	measured map[string]float64) {
	var lost uint64
	for _, tap := range k.capture.Taps {
		lost += tap.Lost
	}
	share := float64(lost) / max(1, float64(lost+k.capture.Packets))
	measured["lost"] = float64(lost)
	against(share, LostDegraded, LostOverloaded,
		plural.Text("the capture lost %d of %d packets", lost, lost+k.capture.Packets))
	if k.load.Pressure >= 0 {
		measured["pressure"] = k.load.Pressure
		against(k.load.Pressure, PressureDegraded, 2,
			fmt.Sprintf("tasks waited for a CPU in %.0f%% of the time", k.load.Pressure*100))
	}
	if k.load.Steal >= 0 {
		measured["steal"] = k.load.Steal
		against(k.load.Steal, StealDegraded, StealOverloaded,
			fmt.Sprintf("the hypervisor took %.0f%% of the CPU time", k.load.Steal*100))
	}
}
