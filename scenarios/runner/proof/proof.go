// Package proof finds, before a run, the checks of a scenario that the scenario's own capture and
// fabric can never prove.
//
// It examines only the file and the plan. A check that can never pass is an error. A check that
// will probably not pass is a warning.
package proof

import (
	"fmt"
	"slices"

	"railbed/capture/verify"
	"railbed/capture/verify/conditions"
	"railbed/fabric/softswitch"
	"railbed/plan"
	"railbed/plan/spec"
)

// prover examines one file.
type prover struct{ *conditions.Prover }

// Look returns problems for checks that can never pass. It returns warnings for checks that will
// probably not pass, for settings of switches without effect, and for rings that are slow because they
// leave the rails of their ranks.
func Look(file *spec.Testbed, p *plan.Plan) (problems, warnings spec.Problems) {
	l := &prover{conditions.New(file, p, func(at plan.End, now plan.Direction) conditions.Foreseen {
		can := softswitch.Foresee(p, at, now)
		made := conditions.Foreseen{Drops: map[string]bool{}, Marks: len(can.Marks) > 0,
			Trims: len(can.Trims) > 0}
		for why := range can.Drops {
			made.Drops[why.String()] = true
		}
		return made
	})}
	l.congestion()
	l.silent()
	l.rails()
	for i, check := range file.Checks {
		if check.Packets != nil && l.Capture != nil {
			verify.Prove(l.Prover, fmt.Sprintf("checks[%d].packets", i), check.Packets)
		}
	}
	return l.Problems, l.Warnings
}

// dscpRoCE is the default DSCP of packets from roce endpoints, and dscpCNP the DSCP of their CNPs.
const dscpRoCE, dscpCNP = 26, 48

// congestion checks that senders with ECN-based congestion control can receive marks.
func (l *prover) congestion() {
	for _, c := range l.Over("roce") {
		if !c.ReactsToMarks() {
			continue
		}
		dscp := dscpsOf(c)[0]
		if !slices.ContainsFunc(l.Plan.Switches, func(s plan.Switch) bool {
			return s.Soft != nil && s.Soft.ECN != nil &&
				slices.Contains(s.Soft.ECN.Priorities, int(s.Soft.Priorities[dscp]))
		}) {
			l.NeverUnlessPrograms(c.Path+".roce.congestion",
				"want fabric: {switch: {ecn: true}} of soft switches, or congestion: none",
				"dcqcn needs marks, and no switch marks RoCEv2 packets (DSCP %d)", dscp)
		}
	}
}
