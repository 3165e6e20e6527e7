package fabricchecks

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// trims judges packets that the selected switches trimmed to their headers. Each carries the DSCP
// of trimmed packets, is no longer than the switch leaves it, and arrives at a node.
type trims struct {
	selector
	count  *spec.Bound
	travel *journeys

	passed, trimmed    uint64
	wrongDSCP, tooLong uint64
	where              places
}

// trimRoom is the number of bytes that a trimmed packet may have beyond the size in the plan.
// Headers are never trimmed, and IPv6 headers with a transport's are the longest. A reliable
// datagram may have its telemetry in addition.
const trimRoom = 128

var _ = evidence.Register(evidence.Kind{Key: "trims", Example: `{at: leaf1, count: ">= 1"}`,
	Conditions: conditions.Conditions{Soft: true, Examine: trimsConditions},
	Make:       evidence.OfSelected(NewTrims)})

func trimsConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Trims
	at := l.Which(func(p *conditions.Port) bool { return !p.NIC && p.Matches(k.At) })
	count := cmp.Or(k.Count, ">= 1")
	l.Seen(path, at, conditions.Limits(count, spec.CountBound))
	l.Seen(path, l.Which(conditions.IsNIC), true)
	if conditions.Demands(count, spec.CountBound) && !l.Can(at, conditions.Trimming) {
		l.Never(path, "want fabric: {switch: {trim: true}} of soft switches",
			"no selected port can trim a packet")
	}
}

// NewTrims makes the check for the packets of a workload, or for all packets if it is nil.
func NewTrims(k *spec.TrimsCheck, w *evidence.Workload) evidence.Check {
	return &trims{
		selector: selector{selection: selection{At: k.At, Workload: w}},
		count:    evidence.Bound(cmp.Or(k.Count, ">= 1"), spec.CountBound),
		where:    places{},
	}
}

// Limit implements evidence.Limiter. A packet counts if its head left the switch in the time. The head may
// arrive later.
func (k *trims) Limit(t *evidence.Times) { k.times = t }

// Begin implements Check.
func (k *trims) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.travel = newJourneys(c, false, nil)
}

// Packet implements Check.
func (k *trims) Packet(p *evidence.Packet) {
	switch {
	case p.Drop != "":
		k.travel.note(p)
	case p.Tap.NIC && p.Direction == evidence.In:
		if p.Flow != nil && k.destination(p) {
			k.travel.arrive(p)
		}
	case !k.at(p.Tap) || p.Direction != evidence.Out || p.Tap.NIC || p.IP == 0 || !k.of(p):
	case p.Verdict == "trim":
		k.cut(p)
	case k.times.Has(p.Time):
		k.passed++
	}
}

// cut adds the head of a packet where it leaves the switch that trimmed it.
func (k *trims) cut(p *evidence.Packet) {
	in := k.times.Has(p.Time)
	k.travel.start(p, journey{apart: !in})
	if !in {
		return
	}
	k.trimmed++
	k.where.add(p, p.Reason)
	if k.capture.Plan == nil {
		return
	}
	sw := k.capture.Plan.Switch(p.Tap.Node)
	if sw == nil || sw.Soft == nil || sw.Soft.Trim == nil {
		return
	}
	if p.DSCP != sw.Soft.Trim.DSCP {
		k.wrongDSCP++
	}
	room := trimRoom
	if p.RD != nil {
		room += p.RD.Telemetry
	}
	if p.Length > int(sw.Soft.Trim.Size)+room {
		k.tooLong++
	}
}

// Result implements Check.
func (k *trims) Result() evidence.Result {
	k.travel.finish(k.capture.End)
	r := evidence.Result{Name: k.titled("trims"), Measured: map[string]float64{
		"trimmed": float64(k.trimmed), "arrived": float64(k.travel.arrived), "lost": float64(k.travel.lost),
		"under-way": float64(k.travel.underWay),
	}}
	f := evidence.Finding{Unclear: k.travel.doubts(), Rests: true}
	f.Hold("packets trimmed", k.count, float64(k.trimmed), fmt.Sprint(k.trimmed))
	f.Absent = append(f.Absent, k.travel.losses("heads of trimmed packets")...)
	if k.wrongDSCP > 0 {
		f.Wrong = append(f.Wrong, fmt.Sprintf(
			"%d trimmed packets do not carry the DSCP of trimmed packets", k.wrongDSCP))
	}
	if k.tooLong > 0 {
		f.Wrong = append(f.Wrong, fmt.Sprintf("%d trimmed packets are longer than the trimmed length",
			k.tooLong))
	}
	if k.passed+k.trimmed == 0 {
		f = evidence.Finding{Unclear: []string{"no packet left a switch at the chosen ports"}}
	}
	r.Details = k.where.lines(k.capture, "trimmed")
	slices.Sort(r.Details)
	r.Summary = plural.Text("%d packets were trimmed; the heads of %d arrived, %d were lost, %d were under "+
		"way at the end", k.travel.left(), k.travel.arrived, k.travel.lost,
		k.travel.underWay+k.travel.ambiguous)
	k.capture.Conclude(&r, evidence.Need{Ports: k.capture.Ports(func(t *evidence.Tap) bool {
		return t.NIC || k.tap(t)
	}), Around: k.capture.Linger(), Records: evidence.RecordsQueues, Clocks: true}, f)
	return r
}
