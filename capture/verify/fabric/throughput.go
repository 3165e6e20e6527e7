package fabric

import (
	"fmt"
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// throughput judges the throughput of each pair of nodes: the bits of frames, from their Ethernet
// header on, that arrived at the destination per second of the testbed's time. The time runs from
// the first frame, which does not count, to the last. Fairness among pairs is Jain's index (Jain,
// Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination", 1984).
type throughput struct {
	selector
	rate, fairness *spec.Bound
	pairs          map[nodePair]*pairThroughput
}

// nodePair is a sending and a receiving node.
type nodePair struct{ from, to string }

func (p nodePair) String() string { return p.from + " > " + p.to }

// pairThroughput counts a pair's frames and the bytes behind the first one, and has the times of
// the first and the last in nanoseconds.
type pairThroughput struct {
	bytes, frames uint64
	first, last   int64
}

// NewThroughput makes the check for the packets of a workload, or for all packets if it is nil.
func NewThroughput(k *spec.ThroughputCheck, w *evidence.Workload) evidence.Check {
	return &throughput{
		selector: selector{selection: selection{From: k.From, To: k.To, Workload: w}},
		rate:     evidence.Bound(k.Rate, spec.RateBound),
		fairness: evidence.Bound(k.Fairness, spec.ShareBound),
		pairs:    map[nodePair]*pairThroughput{},
	}
}

// Begin implements Check.
func (k *throughput) Begin(c *evidence.Capture) { k.begin(c) }

// Packet implements Check.
func (k *throughput) Packet(p *evidence.Packet) {
	if p.Flow == nil || !p.Tap.NIC || p.Direction != evidence.In || p.Drop != "" || !k.flow(p.Flow) ||
		!k.of(p) ||
		!k.destination(p) {
		return
	}
	from, known := k.nodes[p.Flow.Src.Addr()]
	if !known {
		return
	}
	pair := nodePair{from.Node, p.Tap.Node}
	t := k.pairs[pair]
	if t == nil {
		k.pairs[pair] = &pairThroughput{first: p.Time, last: p.Time, frames: 1}
		return
	}
	t.frames++
	t.bytes += uint64(p.Length)
	t.last = max(t.last, p.Time)
}

// Result implements Check.
func (k *throughput) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("throughput"), Measured: map[string]float64{}}
	var f evidence.Finding
	var all []float64
	var sum, squares float64
	for pair, t := range k.pairs {
		seconds := clock.Dilation(k.capture.Dilation).Passed(time.Duration(t.last - t.first)).Seconds()
		if seconds <= 0 {
			r.Details = append(r.Details, plural.Text(
				"%v: %d frames with the same time stamp have no throughput", pair,
				t.frames))
			continue
		}
		rate := float64(t.bytes) * 8 / seconds
		all, sum, squares = append(all, rate), sum+rate, squares+rate*rate
		r.Measured["rate."+pair.String()] = rate
		r.Details = append(r.Details, plural.Text("%v: %s in %d frames over %.3gs", pair, megabits(rate),
			t.frames, seconds))
		f.HoldEither("throughput "+pair.String(), k.rate, rate, megabits(rate))
	}
	slices.Sort(r.Details)
	slices.Sort(f.Absent)
	switch {
	case k.capture.Plan == nil:
		f = evidence.Finding{Unclear: []string{"without a plan the nodes are not known"}}
	case len(all) == 0:
		f.Unclear = append(f.Unclear, "no two packets of a pair of nodes arrived")
	default:
		index := sum * sum / (float64(len(all)) * squares)
		r.Measured["fairness"], r.Measured["pairs"] = index, float64(len(all))
		f.HoldEither("fairness", k.fairness, index, evidence.Percent(index))
		r.Summary = plural.Text("%d pairs of nodes had %s to %s; fairness %s", len(all),
			megabits(slices.Min(all)),
			megabits(slices.Max(all)), evidence.Percent(index))
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.arrivals()}, f)
	return r
}

// arrivals are the NICs at which packets of the selection arrive.
func (k *throughput) arrivals() []string {
	return k.capture.Ports(func(t *evidence.Tap) bool {
		return t.NIC && (k.To == "" || spec.Match(k.To, t.Node))
	})
}

func megabits(rate float64) string { return fmt.Sprintf("%.4g Mbit/s", rate/1e6) }
