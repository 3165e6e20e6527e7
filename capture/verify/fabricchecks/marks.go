package fabricchecks

import (
	"fmt"
	"slices"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// marks judges how many packets of ECN-capable transports carry Congestion Experienced (RFC 3168)
// where they leave the selected switches or arrive at the selected nodes. The mark in the packet
// decides. A port is wrong if it records a mark on a packet that carries none.
type marks struct {
	selector
	share, count *spec.Bound

	capable, marked, said, untrue uint64
	byTap                         evidence.Slots[uint64] // marks that taps recorded
}

var _ = evidence.Register(evidence.Kind{Key: "marks", Example: `{at: leaf1, share: ">= 10%"}`,
	Conditions: conditions.Conditions{Examine: marksConditions}, Make: evidence.Of(NewMarks)})

func marksConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Marks
	at := l.Which(func(p *conditions.Port) bool { return p.Matches(k.At) })
	l.Seen(path, at, k.Share != "" || conditions.Limits(k.Count, spec.CountBound))
	if conditions.Demands(k.Count, spec.CountBound) {
		l.Seen(path+".count", slices.DeleteFunc(slices.Clone(at), conditions.IsNIC), false)
	}
	if conditions.Demands(k.Count, spec.CountBound) && !l.Can(at, conditions.Marking) && !l.Faults {
		l.Never(path+".count", "want fabric: {switch: {ecn: true}} of soft switches",
			"no selected port can mark a packet")
	}
	if conditions.Demands(k.Share, spec.ShareBound) && !l.Can(l.Ports, conditions.Marking) {
		l.NeverUnlessPrograms(path+".share", "want fabric: {switch: {ecn: true}} of soft switches",
			"no switch can mark a packet")
	}
}

// NewMarks makes the check.
func NewMarks(k *spec.MarksCheck) evidence.Check {
	return &marks{
		selector: selector{selection: selection{At: k.At, From: k.From, To: k.To}},
		share:    evidence.Bound(k.Share, spec.ShareBound),
		count:    evidence.Bound(k.Count, spec.CountBound),
	}
}

// Packet implements Check.
func (k *marks) Packet(p *evidence.Packet) {
	if p.IP == 0 || p.ECN == wire.NotECT || !crosses(p) || !k.at(p.Tap) || !k.flow(p.Flow) {
		if p.Verdict == "mark" && p.ECN != wire.CE && k.at(p.Tap) {
			k.untrue++
		}
		return
	}
	k.capable++
	if p.ECN == wire.CE {
		k.marked++
	}
	if p.Verdict != "mark" {
		return
	}
	k.said++
	*k.byTap.At(p.Tap.Index)++
	if p.ECN != wire.CE {
		k.untrue++
	}
}

// Event implements Watcher. The record of a fault that marked a packet shows the packet without the mark.
func (k *marks) Event(p *evidence.Packet) {
	if p.Verdict == "mark" && p.Fault != "" && p.ECN != wire.CE && k.at(p.Tap) && k.flow(p.Flow) {
		k.said++
		*k.byTap.At(p.Tap.Index)++
	}
}

// Result implements Check.
func (k *marks) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("marks"), Measured: map[string]float64{
		"ecn-capable": float64(k.capable), "marked": float64(k.marked), "marked-here": float64(k.said),
	}}
	need := evidence.Need{Ports: k.ports(), AnyOrder: true}
	var f evidence.Finding
	share := 0.0
	if k.capable == 0 {
		f.Unclear = append(f.Unclear, "no packet of an ECN-capable transport")
	} else {
		share = float64(k.marked) / float64(k.capable)
		f.Hold("packets marked here", k.count, float64(k.said), fmt.Sprint(k.said))
		f.HoldEither("share of marked packets", k.share, share, evidence.Percent(share))
	}
	if k.count != nil {
		need.Records = evidence.RecordsFaults // ports of the kernel mark nothing by themselves
	}
	r.Measured["share"] = share
	if k.untrue > 0 {
		f.Wrong = append(f.Wrong, plural.Text("%d packets that were recorded as marked carry no mark",
			k.untrue))
	}
	for _, tap := range k.chosen() {
		if n := *k.byTap.At(tap.Index); n > 0 {
			r.Details = append(r.Details, plural.Text("%s marked %d packets", tap.Name, n))
		}
	}
	r.Summary = plural.Text("%d of %d ECN-capable packets carried a mark (%s); %d were marked here", k.marked,
		k.capable, evidence.Percent(share), k.said)
	k.capture.Conclude(&r, need, f)
	return r
}
