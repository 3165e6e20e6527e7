package fabricchecks

import (
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// reordering judges the share of packets that arrived at their node after a packet of the same flow
// that had left later. This is Type-P-Reordered of RFC 4737, section 4.2. The sequence numbers are
// the order in which packets left their NIC. All data from one engine of reliable datagrams to
// another is one flow, whatever paths it takes.
type reordering struct {
	selector
	share  *spec.Bound
	travel *journeys
	flows  evidence.Slots[flowOrder] // by flow index
	pairs  map[evidence.RDSpace]*flowOrder

	arrived, late uint64
	// equal counts arrivals that may be late, depending on which of several equal packets arrived.
	equal uint64
}

// flowOrder is the state of one flow.
type flowOrder struct {
	left uint64 // ordinal
	// latest and most bound the largest ordinal that arrived.
	latest, most  uint64
	arrived, late uint64
}

// maxOrders bounds the sequence spaces of reliable datagrams that are followed.
const maxOrders = 1 << 13

var _ = evidence.Register(evidence.Kind{Key: "reordering", Example: `{share: "<= 1%"}`,
	Timed: evidence.Never, Conditions: conditions.Conditions{Examine: reorderingConditions},
	Make: evidence.Of(NewReordering)})

// reorderingConditions checks that packets can overtake others or, for a check that wants none, that no link
// setting reorders packets.
func reorderingConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Reordering
	l.Named(path, p)
	reorders := func(_ *conditions.Port, now plan.Direction) bool { return !now.Reorder.IsZero() }
	if conditions.None(k.Share, spec.ShareBound) {
		l.Disturbed(path+".share", l.Crossed(k.From, k.To), reorders, "reorders",
			"want a link without reorder, or a check of other packets")
	}
	changes := slices.ContainsFunc(l.File.Steps, func(s spec.Step) bool { return s.Link != nil })
	if !conditions.Demands(k.Share, spec.ShareBound) || !l.Plan.Soft() || l.Programs || l.Faults || changes ||
		len(l.Over("rd")) > 0 {
		return
	}
	if !l.Can(l.Ports, conditions.Trimming) && !slices.ContainsFunc(l.Ports, func(p *conditions.Port) bool {
		return p.Switch != nil &&
			!slices.Contains([]string{spec.Flow, spec.Polarised}, p.Switch.Soft.LoadBalance) ||
			slices.ContainsFunc(l.Settings(p), func(now plan.Direction) bool { return reorders(p, now) })
	}) {
		l.Hardly(path+".share", "want reorder of a link, or load-balance: spray",
			"all packets of a flow take one path and keep their order")
	}
}

// NewReordering makes the check.
func NewReordering(k *spec.ReorderingCheck) evidence.Check {
	return &reordering{
		selector: selector{selection: selection{From: k.From, To: k.To}},
		share:    evidence.Bound(k.Share, spec.ShareBound),
		pairs:    map[evidence.RDSpace]*flowOrder{},
	}
}

// Begin implements Check.
func (k *reordering) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.travel = newJourneys(c, false, nil)
}

// Packet implements Check.
func (k *reordering) Packet(p *evidence.Packet) {
	if p.Flow == nil || !p.Tap.NIC || p.Drop != "" || !k.flow(p.Flow) {
		return
	}
	f := k.order(p)
	switch p.Direction {
	case evidence.Out:
		f.left++
		k.travel.start(p, journey{ordinal: f.left})
	case evidence.In:
		if !k.destination(p) {
			return
		}
		j, known := k.travel.arrive(p)
		if !known || j.split { // its fragments are of another flow
			return
		}
		f.arrived++
		k.arrived++
		switch {
		case j.latest < f.latest:
			f.late++
			k.late++
		case j.earliest < f.most:
			k.equal++
		}
		f.latest, f.most = max(f.latest, j.earliest), max(f.most, j.latest)
	}
}

// order returns the state of a packet's flow.
func (k *reordering) order(p *evidence.Packet) *flowOrder {
	if p.RD != nil && p.RD.Type == wire.RDData {
		key := p.RDSpace(false)
		if f := k.pairs[key]; f != nil {
			return f
		}
		if len(k.pairs) < maxOrders {
			f := new(flowOrder)
			k.pairs[key] = f
			return f
		}
	}
	return k.flows.At(p.Flow.Index)
}

// Result implements Check.
func (k *reordering) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("reordering"),
		Measured: map[string]float64{"arrived": float64(k.arrived), "late": float64(k.late)}}
	var found evidence.Finding
	share, worst, flows, hit := 0.0, 0.0, 0, 0
	count := func(f *flowOrder) {
		if f.arrived == 0 {
			return
		}
		flows++
		if f.late > 0 {
			hit++
		}
		worst = max(worst, float64(f.late)/float64(f.arrived))
	}
	for i := range k.flows {
		count(&k.flows[i])
	}
	for _, f := range k.pairs {
		count(f)
	}
	if k.arrived == 0 {
		found.Unclear = append(found.Unclear, "no packet was seen to leave one node and to arrive at another")
	} else {
		share = float64(k.late) / float64(k.arrived)
		found.HoldEither("packets out of order", k.share, share, evidence.Percent(share))
		if most := float64(k.late+k.equal) / float64(k.arrived); k.share != nil &&
			k.share.Holds(share) != k.share.Holds(most) {
			found = evidence.Finding{Unclear: []string{plural.Text(
				"%d packets equal others, and so up to %s may be out of order", k.equal,
				evidence.Percent(most))}}
		}
	}
	if k.travel.short {
		found.Unclear = append(found.Unclear, "more packets at once than the check can remember")
	}
	r.Measured["share"], r.Measured["worst-flow"], r.Measured["flows"] = share, worst, float64(flows)
	r.Summary = plural.Text(
		"%d of %d packets arrived out of order (%s), in %d of %d flows; the worst flow has %s",
		k.late, k.arrived, evidence.Percent(share), hit, flows, evidence.Percent(worst))
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Clocks: true}, found)
	return r
}
