package fabricchecks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// drops judges how many packets the selected ports dropped. Ports of soft switches record each drop
// as a packet, with its reason. Queues of kernel switches only count drops, without reasons or
// flows (Options.Drops), and so do interfaces and the stacks of routers (Options.Lost). What no counter of a
// kernel switch counts makes the check INCONCLUSIVE (unseen).
type drops struct {
	selector
	reason string
	count  *spec.Bound

	passed, dropped, others uint64
	where                   places
	unseen                  *unseen // nil without kernel switches
}

// places counts packets that switches recorded, by tap and reason.
type places map[place]uint64

type place struct {
	tap    int
	reason string
}

// add counts a packet, unless there are too many places.
func (w places) add(p *evidence.Packet, reason string) {
	if len(w) < evidence.MaxDetails*10 {
		w[place{p.Tap.Index, reason}]++
	}
}

// lines returns a line for each place, the place with the most packets first. did is the verb for the
// packets there.
func (w places) lines(c *evidence.Capture, did string) (lines []string) {
	sorted := slices.SortedFunc(maps.Keys(w), func(a, b place) int {
		return cmp.Or(cmp.Compare(w[b], w[a]), cmp.Compare(a.tap, b.tap), cmp.Compare(a.reason, b.reason))
	})
	for _, at := range sorted {
		lines = append(lines, fmt.Sprintf("%s %s %d: %s", c.Taps[at.tap].Name, did, w[at], at.reason))
	}
	return lines
}

var _ = evidence.Register(evidence.Kind{Key: "drops",
	Example:    `{at: "leaf1:p*", reason: tail, count: ">= 1"}`,
	Conditions: conditions.Conditions{Examine: dropsConditions}, Make: evidence.Of(NewDrops)})

func dropsConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Drops
	at := l.Which(func(p *conditions.Port) bool { return p.Matches(k.At) })
	l.Seen(path, at, conditions.Limits(k.Count, spec.CountBound))
	if l.Plan.Soft() && conditions.None(k.Count, spec.CountBound) {
		crossed := l.Crossed(k.From, k.To)
		elsewhere := func(p *conditions.Port) bool { return !slices.Contains(crossed, p) }
		l.Lossless(path+".count", slices.DeleteFunc(at, elsewhere), k.Reason)
	}
	if !conditions.Demands(k.Count, spec.CountBound) {
		return
	}
	if !l.Plan.Soft() {
		known := k.Reason == "" || l.Faults && k.Reason == byFault
		if !known || k.From != "" || k.To != "" {
			l.Never(path, "want soft switches, or remove reason, from and to",
				"kernel queues count drops without reasons and flows")
		}
		return
	}
	if k.Reason == "" || k.Reason == refused || k.Reason == byFault && l.Faults ||
		l.Can(at, func(f conditions.Foreseen) bool { return f.Drops[k.Reason] }) {
		return
	}
	if k.Reason == linkDown { // commands can take links down too
		l.Hardly(path+".reason", "want a step with link: {state: down}, or flap of a link",
			"no step takes down a link of the selected ports")
	} else {
		l.Never(path+".reason", "want another reason, or switch and link settings that cause such drops",
			"no selected port can drop a packet for reason %s", k.Reason)
	}
}

// NewDrops makes the check.
func NewDrops(k *spec.DropsCheck) evidence.Check {
	return &drops{
		selector: selector{selection: selection{At: k.At, From: k.From, To: k.To}},
		reason:   k.Reason,
		count:    evidence.Bound(k.Count, spec.CountBound),
		where:    places{},
	}
}

// Limit implements evidence.Limiter. The counters of kernel switches have no times.
func (k *drops) Limit(t *evidence.Times) { k.times = t }

// Begin implements Check.
func (k *drops) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	if c.Plan != nil && !c.Plan.Soft() {
		k.unseen = newUnseen(c)
	}
}

// Event implements Watcher.
func (k *drops) Event(p *evidence.Packet) {
	if k.unseen != nil {
		k.unseen.crossing.Event(p)
	}
}

// Packet implements Check.
func (k *drops) Packet(p *evidence.Packet) {
	if k.unseen != nil {
		k.unseen.packet(p)
	}
	if !k.times.Has(p.Time) || !k.at(p.Tap) || !k.flow(p.Flow) || p.Control() {
		return
	}
	switch {
	case p.Drop == "":
		k.passed++
		return
	case k.reason != "" && p.Drop != k.reason:
		k.others++
	default:
		k.dropped++
	}
	k.where.add(p, p.Drop)
}

// Result implements Check.
func (k *drops) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("drops"),
		Measured: map[string]float64{"dropped": float64(k.dropped), "other-reasons": float64(k.others),
			"passed": float64(k.passed)}}
	if k.reason != "" {
		r.Name += " " + k.reason
	}
	var f evidence.Finding
	counted, harmed := k.counted(), k.capture.HarmAt(k.ports()...).Dropped
	switch {
	case k.reason == "" || k.From != "" || k.To != "":
		counted += harmed
	case k.reason == byFault && k.times == nil: // the queues' drops have another reason
		k.dropped, counted = k.dropped+harmed, 0
	case k.reason == byFault: // at times that are not known
		counted = harmed
	}
	dropped := k.dropped + counted
	switch {
	case k.passed+k.dropped+k.others+counted == 0:
		f.Unclear = append(f.Unclear, "no packet at the chosen ports")
	case counted == 0 || k.reasonKnown() && k.From == "" && k.To == "" && k.times == nil:
		f.Hold("packets dropped", k.count, float64(dropped), fmt.Sprint(dropped))
	default:
		f.Hold("packets dropped", k.count, float64(k.dropped), fmt.Sprint(k.dropped))
		f.Rests, f.Unclear, f.Absent = true, f.Absent, nil
		dropped = k.dropped
		f.Unclear = append(f.Unclear, k.dropping(counted, harmed)+plural.Text(" dropped another %d packets, "+
			"whose flow, reason and time are not known", counted))
	}
	if k.unseen != nil {
		f.Unclear = append(f.Unclear, k.unseen.lines(k.whole())...)
	}
	if others := harmed + k.lost(); counted > others {
		r.Details = append(r.Details, plural.Text("kernel queues at the chosen ports counted %d drops",
			counted-others))
	}
	r.Details = append(r.Details, k.losses()...)
	if harmed > 0 {
		r.Details = append(r.Details, fmt.Sprintf("faults at chosen ports without a tap dropped %d", harmed))
	}
	r.Measured["dropped"] = float64(dropped)
	r.Details = append(r.Details, k.before()...)
	r.Details = append(r.Details, k.where.lines(k.capture, "dropped")...)
	why := "for any reason"
	if k.reason != "" {
		why = fmt.Sprintf("for reason %s, %d for others", k.reason, k.others)
	}
	r.Summary = plural.Text("%d packets were dropped %s", dropped, why)
	k.capture.Conclude(&r, evidence.Need{Ports: k.ports(), Records: evidence.RecordsDrops, AnyOrder: true}, f)
	return r
}

// before tells of packets that the kernels of nodes at soft switches dropped before the taps of NICs. The
// check leaves them out, as no NIC and no switch dropped them.
func (k *drops) before() (lines []string) {
	if !k.soft() {
		return nil
	}
	for _, tap := range k.capture.Taps {
		if tap.NIC && k.at(tap) {
			_, reasons := k.capture.DroppedBefore(tap)
			lines = append(lines, reasons...)
		}
	}
	return lines
}

// dropping names what dropped the counted packets, of which faults dropped some.
func (k *drops) dropping(counted, harmed uint64) string {
	what := "kernel queues"
	if k.soft() {
		what = "links that were down"
	}
	switch {
	case k.reason == byFault || k.soft() && counted == harmed:
		return "faults"
	case harmed > 0:
		what += " and faults"
	}
	return what
}

// soft reports whether the switches are soft. Without a plan it is not known.
func (k *drops) soft() bool { return k.capture.Plan != nil && k.capture.Plan.Soft() }

// reasonKnown reports whether the counted drops have the chosen reason. Where the switches are soft only
// packets for links that were down are counted, and not recorded.
func (k *drops) reasonKnown() bool { return k.reason == "" || k.soft() && k.reason == linkDown }

// linkDown is the reason of drops of packets for a link that is down.
const linkDown = "link-down"

// counted returns the drops that queues of kernel switches counted at the selected ports, and those at NICs
// without a carrier.
func (k *drops) counted() (total uint64) {
	if k.soft() {
		if !k.reasonKnown() {
			return 0
		}
		return k.lost()
	}
	for _, port := range k.ports() {
		total += k.capture.QueueDrops[port]
	}
	return total + k.lost()
}

// whole returns the kernel switches of which a port is selected.
func (k *drops) whole() (names []string) {
	if k.capture.Plan == nil || k.capture.Plan.Soft() {
		return nil
	}
	for _, port := range k.ports() {
		node, _ := spec.SplitPort(port)
		if k.capture.Plan.Switch(node) != nil && !slices.Contains(names, node) {
			names = append(names, node)
		}
	}
	return names
}

// lost returns the packets that selected ports, and the stacks of routers with such a port, lost outside of
// queues.
func (k *drops) lost() (total uint64) {
	for _, at := range slices.Concat(k.ports(), k.whole()) {
		total += k.capture.Lost[at]
	}
	return total
}

// losses names them.
func (k *drops) losses() (lines []string) {
	for _, at := range slices.Concat(k.ports(), k.whole()) {
		lost := k.capture.Lost[at]
		if _, port := spec.SplitPort(at); lost == 0 {
			continue
		} else if port == "" {
			lines = append(lines, plural.Text("the stack of "+at+" dropped %d packets, for their TTL, "+
				"for lack of a route, for their size or for damage", lost))
			continue
		}
		_, line := k.capture.WithoutCarrier(at)
		lines = append(lines, line)
	}
	return lines
}
