package fabricchecks

import (
	"fmt"
	"slices"
	"time"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// throughput judges the throughput of each pair of nodes: the bits of frames, from their Ethernet
// header on, that arrived at the destination per second of the testbed's time. The time runs from
// the first frame, which does not count, to the last. It runs at the source if that takes longer, as
// it does for a pair that is cut off. Fairness among pairs is Jain's index (Jain, Chiu and Hawe, "A
// Quantitative Measure of Fairness and Discrimination", 1984).
//
// With a selection of times only the frames in it count, and only the part of the time that is selected.
//
// A pair is judged if a frame left for its destination, if a step of the run sends frames between its
// nodes, or if the workload does. So a pair of which no frame arrived has a throughput of 0.
type throughput struct {
	selector
	rate, fairness *spec.Bound
	pairs          map[nodePair]*pairThroughput
}

// nodePair is a sending and a receiving node.
type nodePair = evidence.Pair

// pairThroughput counts a pair's frames where they leave and where they arrive, and the bytes that arrived
// behind the first frame. planned names what sends between the nodes, if that is known beforehand.
type pairThroughput struct {
	bytes      uint64
	sent, came span
	planned    string
}

// span counts frames, and has the times of the first and the last in nanoseconds. The times of one span are
// of one clock.
type span struct {
	frames      uint64
	first, last int64
}

func (s *span) add(at int64) {
	if s.frames++; s.frames == 1 {
		s.first = at
	}
	s.last = max(s.last, at)
}

var _ = evidence.Register(evidence.Kind{Key: "throughput",
	Example:    `{to: h0, rate: ">= 10mbit", fairness: ">= 90%"}`,
	Conditions: conditions.Conditions{Examine: throughputConditions},
	Make:       evidence.OfSelected(NewThroughput)})

// throughputConditions checks that the NICs are captured at which packets arrive. If no pair may get too
// little, the check also needs the NICs of all senders, unless a traffic step sends.
func throughputConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Throughput
	arrives := func(p *conditions.Port) bool { return p.NIC && spec.Match(either(k.To), p.Node) }
	l.Seen(path, l.Which(arrives), true)
	least := conditions.Demands(k.Rate, spec.RateBound) || conditions.Demands(k.Fairness, spec.ShareBound)
	known := k.Workload != "" || slices.ContainsFunc(l.File.Steps, func(s spec.Step) bool {
		return s.Traffic != nil
	})
	missing := l.Which(func(p *conditions.Port) bool {
		return p.NIC && !p.Captured && spec.Match(either(k.From), p.Node)
	})
	if least && !known && len(missing) > 0 {
		l.Never(path, "want at: [nics] there, or add "+conditions.Listed(missing), "throughput needs the "+
			"NICs of all senders to know who sent in vain, and the capture at %s lacks %d of them",
			l.Where("at"), len(missing))
	}
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

// Limit implements evidence.Limiter.
func (k *throughput) Limit(t *evidence.Times) { k.times = t }

// pair returns the counts of a pair.
func (k *throughput) pair(of nodePair) *pairThroughput {
	t := k.pairs[of]
	if t == nil {
		t = new(pairThroughput)
		k.pairs[of] = t
	}
	return t
}

// Packet implements Check.
func (k *throughput) Packet(p *evidence.Packet) {
	if p.Flow == nil || !p.Tap.NIC || !k.times.Has(p.Time) || !k.flow(p.Flow) || !k.of(p) {
		return
	}
	if of, leaves := k.capture.Departure(p, k.nodes); leaves {
		k.pair(of).sent.add(p.Time)
		return
	}
	if p.Direction != evidence.In || p.Drop != "" || !k.destination(p) {
		return
	}
	from, known := k.nodes[p.Flow.Src.Addr()]
	if !known {
		return
	}
	t := k.pair(nodePair{From: from.Node, To: p.Tap.Node})
	if t.came.frames > 0 {
		t.bytes += uint64(p.Length)
	}
	t.came.add(p.Time)
}

// plan adds the pairs that are known without packets.
func (k *throughput) plan() {
	for _, of := range k.planned() {
		if t := k.pair(of.Pair); t.planned == "" {
			t.planned = of.Step
		}
	}
}

// seconds returns the time of a pair's frames.
func (k *throughput) seconds(t *pairThroughput) float64 {
	ns := max(k.times.Part(t.came.first, t.came.last), k.times.Part(t.sent.first, t.sent.last))
	return clock.Dilation(k.capture.Dilation).Passed(time.Duration(ns)).Seconds()
}

// brief reports whether the frames of a pair cover less than half of the time of a step or a fault. The pair
// may have stalled then, or it had nothing to send.
func (k *throughput) brief(t *pairThroughput) bool {
	frames := max(t.came.last-t.came.first, t.sent.last-t.sent.first)
	return k.times.During() && t.came.frames > 0 && frames < k.times.Part(k.capture.First, k.capture.End)/2
}

// judge returns the throughput of a pair in words. The throughput of a single frame is not known, nor is that
// of frames that may arrive after the end of the capture.
func (k *throughput) judge(t *pairThroughput) (rate float64, text string, known bool) {
	seconds := k.seconds(t)
	switch {
	case t.came.frames == 0 && t.sent.frames == 0 && k.times != nil:
		return 0, "no frame left or arrived in this time", false
	case t.came.frames == 0 && t.sent.frames == 0:
		return 0, "no frame left or arrived, although " + t.planned + " sends", true
	case t.came.frames == 0 && (k.capture.OnTheWay(t.sent.first) ||
		k.times.EndOf(t.sent.first)-t.sent.first < k.capture.Linger()):
		return 0, plural.Text("%d frames left right before the end of the capture or of the time",
			t.sent.frames), false
	case t.came.frames == 0:
		return 0, plural.Text("0 bit/s, none of %d frames arrived", t.sent.frames), true
	case t.came.frames == 1 && t.sent.frames <= 1:
		return 0, "a single frame has no throughput", false
	case seconds <= 0:
		return 0, plural.Text("%d frames with the same time stamp have no throughput", t.came.frames), false
	}
	rate = float64(t.bytes) * 8 / seconds
	if k.brief(t) {
		return 0, plural.Text("%d frames cover only %.3gs of this time", t.came.frames, seconds), false
	}
	return rate, plural.Text("%s in %d frames over %.3gs", megabits(rate), t.came.frames, seconds), true
}

// Result implements Check.
func (k *throughput) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("throughput"), Measured: map[string]float64{}}
	k.plan()
	var f evidence.Finding
	var all []float64
	var sum, squares float64
	for pair, t := range k.pairs {
		rate, text, known := k.judge(t)
		r.Details = append(r.Details, fmt.Sprintf("%v: %s", pair, text))
		if !known && k.times != nil && (k.least() || k.brief(t)) {
			f.Unclear = append(f.Unclear, fmt.Sprintf("%v: %s: its throughput is not known", pair, text))
		}
		if !known {
			continue
		}
		all, sum, squares = append(all, rate), sum+rate, squares+rate*rate
		r.Measured["rate."+pair.String()] = rate
		shown := megabits(rate)
		if rate == 0 {
			shown = text
		}
		f.HoldEither("throughput "+pair.String(), k.rate, rate, shown)
	}
	slices.Sort(r.Details)
	slices.Sort(f.Absent)
	slices.Sort(f.Unclear)
	switch {
	case k.capture.Plan == nil:
		f = evidence.Finding{Unclear: []string{"without a plan the nodes are not known"}}
	case len(all) == 0:
		f.Unclear = append(f.Unclear, "no two packets of a pair of nodes arrived")
	case squares == 0:
		r.Summary = plural.Text("nothing arrived of %d pairs of nodes", len(all))
		f.Unclear = append(f.Unclear, r.Summary)
	default:
		index := sum * sum / (float64(len(all)) * squares)
		r.Measured["fairness"], r.Measured["pairs"] = index, float64(len(all))
		f.HoldEither("fairness", k.fairness, index, evidence.Percent(index))
		r.Summary = plural.Text("%d pairs of nodes had %s to %s; fairness %s", len(all),
			megabits(slices.Min(all)),
			megabits(slices.Max(all)), evidence.Percent(index))
	}
	if k.least() {
		f.Unclear = append(f.Unclear, k.unknownSenders()...)
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.nicsOf(k.To)}, f)
	return r
}

// least reports whether the check requires that no pair gets too little.
func (k *throughput) least() bool {
	return k.rate != nil && !k.rate.Upper() || k.fairness != nil && !k.fairness.Upper()
}

func megabits(rate float64) string { return fmt.Sprintf("%.4g Mbit/s", rate/1e6) }
