// Package rocechecks has the checks of RoCEv2: the rules of IBTA for requests, answers and CRCs, and those of
// congestion control. New makes the check of a rule.
//
// Most checks follow the requests of each connection at one end (follower). Checks of other packages
// that count bytes use Requests, which tells repeats apart.
package rocechecks

import (
	"fmt"
	"slices"
	"time"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// pairKey names a sender and a queue pair to which it sends: one direction of a connection.
type pairKey struct {
	addresses evidence.Addresses
	qp        infiniband.QPN
}

// keyOf returns the key of a packet.
func keyOf(p *evidence.Packet) pairKey {
	return pairKey{p.Addresses, p.RoCE.BTH.DestQP}
}

var _ = evidence.Register(evidence.Kind{Key: "roce", Example: "{rule: icrc}",
	// The other rules are about numbers and bytes.
	Timed: func(p *spec.PacketsCheck) bool {
		return p.RoCE.Rule == spec.RoCERuleCNP || p.RoCE.Rule == spec.RoCERuleRate
	},
	Conditions: conditions.Conditions{Packets: conditions.RoCE, Examine: roceConditions},
	Make: func(p *spec.PacketsCheck, _ evidence.Sources) (evidence.Check, error) {
		return New(p.RoCE)
	}})

// roceFrame returns the length of a RoCEv2 packet with a payload of a whole path MTU: Ethernet, IP,
// UDP, the BTH, the RETH of a WRITE, and the ICRC.
func roceFrame(version, payload int) units.Bytes {
	ip := 20
	if version == 6 {
		ip = 40
	}
	return units.Bytes(wire.EthernetLen + ip + wire.UDPLen + infiniband.BTHLen + infiniband.RETHLen +
		payload + infiniband.ICRCLen)
}

func roceConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.RoCE
	steps := l.Over("roce")
	switch k.Rule {
	case spec.RoCERuleCNP, spec.RoCERuleRate:
		if len(steps) > 0 && !slices.ContainsFunc(steps, conditions.Carried.ReactsToMarks) {
			l.NeverUnlessPrograms(path+".rule", "want roce: {congestion: dcqcn} in a step",
				"no step with transport: roce reacts to marks")
		} else if !l.Can(l.Ports, conditions.Marking) {
			l.NeverUnlessPrograms(path+".rule", "want fabric: {switch: {ecn: true}} of soft switches",
				"no switch can mark a packet")
		}
	case spec.RoCERulePSN:
		if conditions.None(k.Again, spec.CountBound) {
			l.Lossless(path+".again", l.Crossed("", ""), "")
		}
	case spec.RoCERuleICRC:
		icrcConditions(l, path, steps)
	}
}

// icrcConditions checks that the capture keeps packets whole, because an ICRC covers the whole packet.
func icrcConditions(l *conditions.Prover, path string, steps []conditions.Carried) {
	payload := infiniband.PathMTU(l.Widest())
	for _, c := range steps {
		longest := roceFrame(c.Version(), payload)
		want := fmt.Sprintf("want snaplen: %s there", longest)
		what := fmt.Sprintf("an ICRC covers whole packets: those of %s have up to %s, and the capture at %s "+
			"keeps %s of each", c.Name, longest, l.Where("snaplen"), l.Capture.SnapLen)
		switch {
		case l.Capture.SnapLen >= longest:
			continue
		case c.Whole >= units.Bytes(payload) || l.Capture.SnapLen < roceFrame(c.Version(), 0)+c.Whole:
			l.Never(path+".rule", want, "%s", what)
		default:
			l.Hardly(path+".rule", want, "%s", what)
		}
		return
	}
	if longest := roceFrame(6, payload); len(steps) == 0 && l.Capture.SnapLen < longest {
		l.Hardly(path+".rule", fmt.Sprintf("want snaplen: %s there", longest),
			"an ICRC covers whole packets, and the capture at %s keeps %s of each", l.Where("snaplen"),
			l.Capture.SnapLen)
	}
}

// New makes the check of a rule.
func New(k *spec.RoCECheck) (evidence.Check, error) {
	within := time.Duration(k.Within)
	switch k.Rule {
	case spec.RoCERuleICRC:
		return newICRC(), nil
	case spec.RoCERulePSN:
		return newPSN(evidence.Bound(k.Again, spec.CountBound)), nil
	case spec.RoCERuleAcks:
		return newAcks(), nil
	case spec.RoCERuleWrites:
		return newWrites(), nil
	case spec.RoCERuleGoBack:
		return newGoBack(), nil
	case spec.RoCERuleCNP:
		return newCNP(within), nil
	case spec.RoCERuleRate:
		return newRate(within), nil
	}
	return nil, fmt.Errorf("check of packets: unknown rule %q of RoCEv2", k.Rule)
}

// title returns the name of the check of a rule.
func title(rule string) string { return "roce " + rule }

// notApplicable formats the finding of a check whose precondition does not hold.
func notApplicable(format string, args ...any) string {
	return "NOT-APPLICABLE: " + plural.Text(format, args...)
}
