package fabricchecks

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
	lost    uint64
	streams map[stream]*latencies
	order   []stream
	idle    []string // pairs that a step sends between, and of which no packet left
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

// latencies counts the packets of a stream that arrived, those that keep each bound, and those that did not
// arrive. Packets that switches trimmed or faults changed are in no count.
type latencies struct {
	number  int // from 1, in order
	flow    *evidence.Flow
	packets uint64
	lost    uint64
	keep    [4]uint64
	longest int64 // ns
}

// streamsMost bounds the streams that are followed.
const streamsMost = 1 << 16

var _ = evidence.Register(evidence.Kind{Key: "latency", Example: `{p99: "<= 200us", per: flow}`,
	Make: evidence.OfSelected(NewLatency)})

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

// Limit implements evidence.Limiter. A packet counts if it left in the time.
func (k *latency) Limit(t *evidence.Times) { k.times = t }

// Begin implements Check.
func (k *latency) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.travel, k.offenders = newJourneys(c, true, k.missed), c.NewOffenders()
}

// Packet implements Check.
func (k *latency) Packet(p *evidence.Packet) {
	if p.Flow == nil || !k.flow(p.Flow) || !k.of(p) {
		return
	}
	switch {
	case !p.Tap.NIC && p.Verdict == "trim":
		k.travel.spoiled(p)
	case !p.Tap.NIC:
	case p.Drop != "" && !k.times.Has(p.Time):
	case p.Drop != "":
		// A fault at a kernel's NIC acts before the tap.
		if l := k.stream(p); l != nil && k.leaves(p) {
			l.lost++
		}
	case p.Direction == evidence.Out:
		if !k.leaves(p) {
			return
		}
		if !k.times.Has(p.Time) { // its arrival belongs to no other packet
			k.travel.start(p, journey{ordinal: uint64(p.Number), apart: true})
			return
		}
		l := k.stream(p)
		if l == nil {
			k.forgotten++
			return
		}
		// The clocks of two taps may differ a little.
		if k.travel.start(p, journey{ordinal: uint64(p.Number), stream: l.number}) {
			k.took(p, l, 0)
		}
	case p.Direction == evidence.In && k.destination(p):
		j, known := k.travel.arrive(p)
		switch {
		case !known:
		case j.earliest != j.latest:
			k.equal++
		default:
			k.took(p, k.streams[k.order[j.stream-1]],
				int64(clock.Dilation(k.capture.Dilation).Passed(time.Duration(p.Time-j.left))))
		}
	}
}

// Event implements Watcher.
func (k *latency) Event(p *evidence.Packet) {
	if p.Spoiled() && p.Flow != nil && k.flow(p.Flow) && k.of(p) {
		k.travel.spoiled(p)
	}
}

// missed counts a packet that did not arrive.
func (k *latency) missed(j journey) { k.streams[k.order[j.stream-1]].lost++ }

// stream returns the stream of a packet, or nil if there are too many.
func (k *latency) stream(p *evidence.Packet) *latencies {
	var of stream
	switch k.per {
	case spec.PerFlow:
		of.flow = p.Flow.Index + 1
	case spec.PerPair:
		of.pair = nodePair{From: k.nodes[p.Flow.Src.Addr()].Node, To: k.nodes[p.Flow.Dst.Addr()].Node}
	}
	l := k.streams[of]
	if l == nil && len(k.streams) < streamsMost {
		k.order = append(k.order, of)
		l = &latencies{number: len(k.order), flow: p.Flow}
		k.streams[of] = l
	}
	return l
}

// took counts the latency of a packet that arrives.
func (k *latency) took(p *evidence.Packet, l *latencies, ns int64) {
	k.all.add(uint64(max(0, ns)))
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

// finish counts the packets that did not arrive, and names the pairs of which no packet left.
func (k *latency) finish() {
	k.travel.finish(k.capture.End)
	seen := map[nodePair]bool{}
	for _, of := range k.order {
		l := k.streams[of]
		k.lost += l.lost
		seen[nodePair{From: k.nodes[l.flow.Src.Addr()].Node, To: k.nodes[l.flow.Dst.Addr()].Node}] = true
	}
	for _, of := range k.planned() {
		if k.per != "" && !seen[of.Pair] {
			seen[of.Pair] = true
			k.idle = append(k.idle, fmt.Sprintf("%v: no packet left, although %s sends", of.Pair, of.Step))
		}
	}
}

// holds reports whether a percentile keeps its bound. An upper bound holds if the packet of the
// percentile's rank keeps it, and so do all faster ones. A lower bound holds if that packet and all slower
// ones keep it, as lost packets do.
func (b *latencyBound) holds(l *latencies, keep uint64) bool {
	packets := l.packets + l.lost
	rank := uint64(math.Ceil(b.share*float64(packets) - 1e-9))
	if b.Upper() {
		return keep >= rank
	}
	return keep+l.lost >= packets-rank+1
}

// Result implements Check.
func (k *latency) Result() evidence.Result {
	k.finish()
	r := evidence.Result{Name: k.titled("latency"), Offenders: k.offenders, Measured: map[string]float64{
		"packets": float64(k.all.total), "lost": float64(k.lost), "p50": float64(k.all.quantile(0.5)) / 1e9,
		"p99": float64(k.all.quantile(0.99)) / 1e9, "p999": float64(k.all.quantile(0.999)) / 1e9,
		"max": float64(k.all.most) / 1e9, "streams": float64(len(k.order)),
	}}
	f := evidence.Finding{Rests: true, Unclear: k.idle}
	for _, of := range k.order {
		l := k.streams[of]
		for i := range k.bounds {
			if b := &k.bounds[i]; l.packets+l.lost > 0 && !b.holds(l, l.keep[i]) {
				f.Absent = append(f.Absent, fmt.Sprintf("%s%s: %s", b.name, k.named(of, l),
					l.text(b.Bound, l.keep[i])))
			}
		}
	}
	if len(f.Absent) == 0 {
		k.offenders.Forget()
	}
	if k.all.total+k.lost == 0 {
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
	if k.lost > 0 {
		r.Summary += fmt.Sprintf("; another %d did not arrive", k.lost)
	}
	r.Details = k.offenders.Lines()
	f.Shorten()
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Around: k.capture.Linger(), Clocks: true,
		Durations: true}, f)
	return r
}

// text says how many packets kept a bound.
func (l *latencies) text(b spec.Bound, keep uint64) string {
	text := plural.Text("%d of %d packets took %s", keep, l.packets+l.lost, b)
	if l.packets > 0 {
		text += fmt.Sprintf(", the slowest %v", time.Duration(l.longest))
	}
	if l.lost > 0 {
		text += plural.Text("; %d did not arrive", l.lost)
	}
	return text
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
