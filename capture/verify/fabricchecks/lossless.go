package fabricchecks

import (
	"fmt"
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/spec"
)

// nicOverrun is the reason of drops that the node causes and not the fabric.
const nicOverrun = "nic-overrun"

// byFault is the reason of drops that the run asked for.
const byFault = "fault"

// refused is the reason of drops of packets that crossed the fabric and for which the host had no
// room. The fabric's handling of these packets cannot be judged.
const refused = "refused"

// lossless checks that the fabric neither loses nor makes packets. Every packet that left a node,
// and that the emulated NIC had room for, has to arrive once at its destination NIC. The check
// matches packets from NIC to NIC. Drop records of switches only explain missing packets. A packet
// that was trimmed on the way did not arrive.
type lossless struct {
	selector
	priority int                               // -1 is any
	maps     evidence.Slots[*plan.PriorityMap] // by tap index, as far as looked up; see priorities
	travel   *journeys

	overrun, refused, astray uint64
	harmed                   uint64 // dropped by faults
	expired                  uint64 // with a TTL that ends on the way
	copied                   uint64 // by faults
	examples                 []string
}

var _ = evidence.Register(evidence.Kind{Key: "lossless", Example: "{to: h0, priority: 3}",
	Timed: evidence.Never, Conditions: conditions.Conditions{Examine: losslessConditions},
	Make: evidence.Of(NewLossless)})

func losslessConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	l.Named(path, p)
	l.Lossless(path, l.Crossed(p.Lossless.From, p.Lossless.To), "")
}

// NewLossless makes the check. A priority needs a plan of soft switches, each of which may map DSCPs
// to priorities differently. The switch to which the sender is attached determines a packet's
// priority.
func NewLossless(k *spec.LosslessCheck) evidence.Check {
	return &lossless{
		selector: selector{selection: selection{From: k.From, To: k.To}},
		priority: priority(k.Priority),
	}
}

// Begin implements Check.
func (k *lossless) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.travel = newJourneys(c, true, k.exemplify)
}

// noPriorities is the map of NICs that are attached to no soft switch.
var noPriorities = new(plan.PriorityMap)

// priorities returns the map from DSCP to priority of the soft switch to which a NIC is attached,
// or noPriorities without one.
func (k *lossless) priorities(nic *evidence.Tap) *plan.PriorityMap {
	slot := k.maps.At(nic.Index)
	if *slot == nil {
		*slot = noPriorities
		if port, _ := k.capture.Interface(nic.Node, nic.Port); port != nil {
			peer, _ := spec.SplitPort(port.Peer)
			if sw := k.capture.Plan.Switch(peer); sw != nil && sw.Soft != nil {
				*slot = &sw.Soft.Priorities
			}
		}
	}
	return *slot
}

// ofPriority reports whether a packet that leaves a NIC has the selected priority.
func (k *lossless) ofPriority(p *evidence.Packet) bool {
	if k.priority < 0 {
		return true
	}
	m := k.priorities(p.Tap)
	if p.PCP >= 0 {
		return m != noPriorities && p.PCP == k.priority
	}
	return m != noPriorities && int(m[p.DSCP]) == k.priority
}

// Packet implements Check.
func (k *lossless) Packet(p *evidence.Packet) {
	if p.Flow == nil || !k.flow(p.Flow) {
		return
	}
	switch {
	case p.Drop != "":
		k.drop(p)
	case !p.Tap.NIC:
	case p.Direction == evidence.Out:
		src, from := k.nodes[p.Flow.Src.Addr()]
		dst, to := k.nodes[p.Flow.Dst.Addr()]
		switch {
		case !from || !to:
		case k.capture.Expires(p, evidence.Pair{From: src.Node, To: dst.Node}):
			k.expired++
		default:
			k.travel.start(p, journey{apart: !k.ofPriority(p)})
		}
	case p.Direction != evidence.In:
	case k.destination(p):
		if _, from := k.nodes[p.Flow.Src.Addr()]; from {
			k.travel.arrive(p)
		}
	case !p.Foreign && !p.Group:
		k.astray++
	}
}

// Event implements Watcher.
func (k *lossless) Event(p *evidence.Packet) {
	switch {
	case p.Spoiled():
		k.travel.spoiled(p)
	case p.Fault == "", p.Tap.NIC && !k.capture.Numbered(): // before the NIC's tap
	case p.Verdict == "delay":
		k.travel.harm(p, held)
	case slices.Contains(copying, p.Verdict) && p.Flow != nil && k.flow(p.Flow):
		k.copied++
		k.travel.copied(p)
	}
}

// copying are the verdicts of faults that send a copy of a packet.
var copying = []string{"duplicate", "mirror"}

// drop takes a drop record of a packet that will not arrive.
func (k *lossless) drop(p *evidence.Packet) {
	if p.Tap.NIC && !k.capture.Numbered() {
		return // before the NIC's tap, so that it did not leave
	}
	switch p.Drop {
	case nicOverrun:
		if k.travel.forget(p) {
			k.overrun++
		}
	case byFault:
		if k.travel.forget(p) {
			k.harmed++
		}
	case refused:
		if k.travel.forget(p) {
			k.refused++
		}
	default:
		k.travel.note(p)
	}
}

// switchPorts returns the ports of the plan's switches, as node:port. A fault at a NIC acts before the NIC's
// tap.
func (k *lossless) switchPorts() (ports []string) {
	if k.capture.Plan == nil {
		return nil
	}
	for i := range k.capture.Plan.Switches {
		ports = append(ports, k.capture.Plan.Switches[i].PortNames()...)
	}
	return ports
}

// exemplify keeps the first packets that were lost as examples.
func (k *lossless) exemplify(j journey) {
	if len(k.examples) < 5 {
		k.examples = append(k.examples,
			fmt.Sprintf("packet %#x of %s: %s", j.id, evidence.ClockTime(j.left), j.reason))
	}
}

// leftOut describes the packets that the check does not judge.
func (k *lossless) leftOut() (lines []string) {
	if k.expired > 0 {
		lines = append(lines, plural.Text("%d packets are left out: their TTL ends on the way", k.expired))
	}
	if k.astray > 0 {
		lines = append(lines, plural.Text("%d packets came to a NIC that they were not addressed to",
			k.astray))
	}
	return lines
}

// Result implements Check.
func (k *lossless) Result() evidence.Result {
	t := k.travel
	t.finish(k.capture.End)
	sent := t.left() + k.overrun + k.refused + k.harmed
	r := evidence.Result{Name: k.titled("lossless"), Measured: map[string]float64{
		"sent": float64(sent), "arrived": float64(t.arrived), "lost": float64(t.lost),
		"again":       float64(t.strays),
		"nic-overrun": float64(k.overrun), "refused": float64(k.refused),
		"under-way": float64(t.underWay + t.ambiguous), "by-fault": float64(k.harmed + t.excused),
	}}
	f := evidence.Finding{Absent: t.losses("packets"), Unclear: t.doubts()}
	harm := k.capture.HarmAt(k.switchPorts()...)
	explained := min(t.lost, harm.Dropped+harm.Changed)
	switch {
	case explained < t.lost && explained > 0:
		f.Absent = append(f.Absent, fmt.Sprintf("faults at ports without a tap hit only %d of these",
			explained))
	case explained > 0:
		f.Absent, k.examples = nil, nil
		f.Unclear = append(f.Unclear, plural.Text("%d packets were lost, and faults at ports without a tap "+
			"hit as many, but it is not known which; capture these ports too", explained))
	}
	made := min(t.strays, t.altered+k.copied+harm.Changed+harm.Copied)
	if strays := t.strays - made; strays > 0 && k.priority < 0 {
		f.Absent = append(f.Absent, plural.Text("%d packets arrived that had not left, or had arrived before",
			strays))
	}
	f.Absent = append(f.Absent, k.examples...)
	if k.refused > 0 {
		f.Unclear = append(f.Unclear, plural.Text(
			"%d packets came to a node without room: the host is too busy", k.refused))
	}
	f.Unclear = append(f.Unclear, k.neverSeen()...)
	r.Details = append(r.Details, k.leftOut()...)
	switch {
	case k.capture.Plan == nil:
		f = evidence.Finding{Unclear: []string{"without a plan the nodes are not known"}}
	case t.arrived+t.lost == 0:
		f.Unclear = append(f.Unclear, "no packet left a node for another")
	}
	r.Summary = plural.Text("%d packets left: %d arrived, %d were lost, %d found no room in the emulated "+
		"NIC, %d were refused by their node, %d were under way at the end",
		sent, t.arrived, t.lost, k.overrun, k.refused, t.underWay)
	if k.harmed > 0 {
		r.Summary += plural.Text(", %d were dropped by faults", k.harmed)
	}
	if t.excused > 0 {
		r.Summary += fmt.Sprintf(", %d did not arrive as they left because a fault changed, held or "+
			"misrouted them", t.excused)
	}
	if explained > 0 {
		r.Summary += fmt.Sprintf(", %d of the lost ones may have been hit by faults", explained)
	}
	if t.ambiguous > 0 {
		r.Summary += fmt.Sprintf(", %d equal ones lost or under way", t.ambiguous)
	}
	if t.strays > 0 {
		r.Summary += fmt.Sprintf("; %d arrived that had not left, or had arrived before", t.strays)
	}
	if made > 0 {
		r.Summary += fmt.Sprintf(", of which faults copied or changed %d", made)
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Clocks: true}, f)
	return r
}
