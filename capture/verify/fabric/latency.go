package fabric

import (
	"fmt"
	"math"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// latency judges the time between the departure of packets at the NIC of their source and their arrival
// at the NIC of their destination, in the testbed's time. Whether a percentile keeps its bound follows
// from the number of packets that keep the bound, so that the verdict is exact and a flow needs a few
// numbers only. The percentiles in the summary are of a histogram.
type latency struct {
	selector
	per       string
	bounds    []latencyBound
	travel    *journeys
	offenders *evidence.Offenders

	all     histogram // ns
	streams map[stream]*latencies
	order   []stream
	// equal counts packets that equal others under way, so that it is not known which of them arrived.
	equal, forgotten uint64
}

// latencyBound is a bound of a percentile.
type latencyBound struct {
	name  string
	share float64
	spec.Bound
}

// stream identifies a flow or a pair of nodes. Each stream has percentiles of its own.
type stream struct {
	flow int
	pair nodePair
}

// latencies counts the packets of a stream, and those that keep each bound.
type latencies struct {
	flow    *evidence.Flow
	packets uint64
	keep    [4]uint64
	longest int64 // ns
}

// streamsMost bounds the streams that are followed.
const streamsMost = 1 << 16

// NewLatency makes the check for the packets of a workload, or for all packets if it is nil.
func NewLatency(k *spec.LatencyCheck, w *evidence.Workload) evidence.Check {
	l := &latency{selector: selector{selection: selection{From: k.From, To: k.To, Workload: w}}, per: k.Per,
		streams: map[stream]*latencies{}}
	for _, b := range []struct {
		name  string
		share float64
		text  string
	}{{"p50", 0.5, k.P50}, {"p99", 0.99, k.P99}, {"p999", 0.999, k.P999}, {"max", 1, k.Max}} {
		if bound := evidence.Bound(b.text, spec.DurationBound); bound != nil {
			l.bounds = append(l.bounds, latencyBound{b.name, b.share, *bound})
		}
	}
	return l
}

// Begin implements Check.
func (k *latency) Begin(c *evidence.Capture) {
	k.begin(c)
	k.travel, k.offenders = newJourneys(c, false, nil), c.NewOffenders()
}

// Packet implements Check.
func (k *latency) Packet(p *evidence.Packet) {
	if p.Flow == nil || !p.Tap.NIC || p.Drop != "" || !k.flow(p.Flow) || !k.of(p) {
		return
	}
	switch p.Direction {
	case evidence.Out:
		k.travel.start(p, journey{ordinal: uint64(p.Number)})
	case evidence.In:
		if !k.destination(p) {
			return
		}
		j, known := k.travel.arrive(p)
		switch {
		case !known:
		case j.earliest != j.latest:
			k.equal++
		default:
			k.took(p, int64(clock.Dilation(k.capture.Dilation).Passed(time.Duration(p.Time-j.left))))
		}
	}
}

// took counts the latency of a packet that arrives.
func (k *latency) took(p *evidence.Packet, ns int64) {
	k.all.add(uint64(max(0, ns)))
	var of stream
	switch k.per {
	case spec.PerFlow:
		of.flow = p.Flow.Index + 1
	case spec.PerPair:
		of.pair = nodePair{k.nodes[p.Flow.Src.Addr()].Node, p.Tap.Node}
	}
	l := k.streams[of]
	if l == nil {
		if len(k.streams) >= streamsMost {
			k.forgotten++
			return
		}
		l = &latencies{flow: p.Flow}
		k.streams[of], k.order = l, append(k.order, of)
	}
	l.packets++
	l.longest = max(l.longest, ns)
	slow := false
	for i := range k.bounds {
		if k.bounds[i].Holds(float64(ns)) {
			l.keep[i]++
		} else {
			slow = slow || k.bounds[i].Upper()
		}
	}
	if slow {
		k.offenders.Add(p)
	}
}

// holds reports whether a percentile keeps its bound. An upper bound holds if the packet of the
// percentile's rank keeps it, and so do all faster ones. A lower bound holds if that packet and all slower
// ones keep it.
func (b *latencyBound) holds(packets, keep uint64) bool {
	rank := uint64(math.Ceil(b.share*float64(packets) - 1e-9))
	if b.Upper() {
		return keep >= rank
	}
	return keep >= packets-rank+1
}

// Result implements Check.
func (k *latency) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("latency"), Offenders: k.offenders, Measured: map[string]float64{
		"packets": float64(k.all.total), "p50": float64(k.all.quantile(0.5)) / 1e9,
		"p99": float64(k.all.quantile(0.99)) / 1e9, "p999": float64(k.all.quantile(0.999)) / 1e9,
		"max": float64(k.all.most) / 1e9, "streams": float64(len(k.order)),
	}}
	f := evidence.Finding{Rests: true}
	for _, of := range k.order {
		l := k.streams[of]
		for i := range k.bounds {
			if b := &k.bounds[i]; !b.holds(l.packets, l.keep[i]) {
				f.Absent = append(f.Absent, plural.Text("%s%s: %d of %d packets took %s, the slowest %v",
					b.name, k.named(of, l), l.keep[i], l.packets, b.Bound, time.Duration(l.longest)))
			}
		}
	}
	if len(f.Absent) == 0 {
		k.offenders.Forget()
	}
	if k.all.total == 0 {
		f.Unclear = append(f.Unclear, "no packet was seen to leave one node and to arrive at another")
	}
	if k.equal > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d packets arrived while equal ones were under way, and "+
			"their latency is not known", k.equal))
	}
	if k.forgotten > 0 {
		f.Unclear = append(f.Unclear, plural.Text("%d packets were of streams beyond the first %d, and "+
			"were not judged", k.forgotten, streamsMost))
	}
	if k.travel.short {
		f.Unclear = append(f.Unclear, "more packets at once than the check can remember")
	}
	r.Summary = plural.Text("%d packets took %v (p50), %v (p99), %v (p99.9), at most %v", k.all.total,
		k.about(0.5), k.about(0.99), k.about(0.999), time.Duration(k.all.most))
	r.Details = k.offenders.Lines()
	f.Shorten()
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Clocks: true}, f)
	return r
}

func (k *latency) about(q float64) time.Duration { return time.Duration(k.all.quantile(q)) }

// named returns a stream for people.
func (k *latency) named(of stream, l *latencies) string {
	switch k.per {
	case spec.PerFlow:
		return fmt.Sprintf(" of %v > %v", l.flow.Src, l.flow.Dst)
	case spec.PerPair:
		return " of " + of.pair.String()
	}
	return ""
}
