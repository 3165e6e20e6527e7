package fabricchecks

import (
	"fmt"
	"strings"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// flowCount judges how many flows passed the selected ports, in either direction.
type flowCount struct {
	selector
	count *spec.Bound

	seen      evidence.Slots[bool]   // by flow
	flows     int                    // of which packets passed
	perTap    evidence.Slots[uint64] // packets of the selection, by tap
	recorded  uint64                 // packets at the selected ports
	fragments uint64                 // of which only the first has the ports of its flow
}

var _ = evidence.Register(evidence.Kind{Key: "flows", Example: `{from: h0, to: h4, count: ">= 16"}`,
	Timed: evidence.Never, Conditions: conditions.Conditions{Examine: flowsConditions},
	Make: evidence.OfSelected(NewFlows)})

func flowsConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.Flows
	at := l.Which(func(p *conditions.Port) bool { return p.Matches(k.At) })
	l.Seen(path, at, conditions.Limits(k.Count, spec.CountBound))
}

// NewFlows makes the check for the packets of a workload, or for all packets if it is nil.
func NewFlows(k *spec.FlowsCheck, w *evidence.Workload) evidence.Check {
	return &flowCount{
		selector: selector{selection: selection{At: k.At, From: k.From, To: k.To, Workload: w}},
		count:    evidence.Bound(k.Count, spec.CountBound),
	}
}

// Packet implements Check.
func (k *flowCount) Packet(p *evidence.Packet) {
	if p.Drop != "" || !k.at(p.Tap) {
		return
	}
	k.recorded++
	if p.Flow == nil || !k.flow(p.Flow) || !k.of(p) {
		return
	}
	*k.perTap.At(p.Tap.Index)++
	if p.Fragment {
		k.fragments++
		return
	}
	if seen := k.seen.At(p.Flow.Index); !*seen {
		*seen = true
		k.flows++
	}
}

// Result implements Check.
func (k *flowCount) Result() evidence.Result {
	r := evidence.Result{Name: k.titled("flows"), Measured: map[string]float64{"flows": float64(k.flows)}}
	var f evidence.Finding
	if k.fragments > 0 {
		f.Unseen = append(f.Unseen, plural.Text("%d fragments, whose flows are not known", k.fragments))
	}
	if k.recorded == 0 {
		f.Unclear = append(f.Unclear, "no packet at the chosen ports")
	} else {
		f.Hold("flows", k.count, float64(k.flows), fmt.Sprint(k.flows))
	}
	r.Summary = plural.Text("%d flows passed %s", k.flows, k.where())
	k.capture.Conclude(&r, evidence.Need{Ports: k.ports(), AnyOrder: true}, f)
	return r
}

// where names the ports of the selection that packets passed.
func (k *flowCount) where() string {
	const most = 4
	var names []string
	for _, tap := range k.chosen() {
		if *k.perTap.At(tap.Index) > 0 {
			names = append(names, tap.Name)
		}
	}
	if len(names) > most {
		return plural.Text("%d ports", len(names))
	}
	if len(names) == 0 {
		return "no port"
	}
	return strings.Join(names, ", ")
}
