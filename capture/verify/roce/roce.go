// Package roce has the checks of RoCEv2: the rules of IBTA for requests, answers and CRCs, and those of
// congestion control. New makes the check of a rule.
//
// Most checks follow the requests of each connection at one end (follower). Checks of other packages
// that count bytes use Requests, which tells repeats apart.
package roce

import (
	"fmt"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
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

// Timed reports whether a rule is about congestion, so that its verdict depends on faithful time. All
// other rules are about numbers and bytes.
func Timed(k *spec.RoCECheck) bool {
	return k.Rule == spec.RoCERuleCNP || k.Rule == spec.RoCERuleRate
}

// title returns the name of the check of a rule.
func title(rule string) string { return "roce " + rule }

// notApplicable formats the finding of a check whose precondition does not hold.
func notApplicable(format string, args ...any) string {
	return "NOT-APPLICABLE: " + plural.Text(format, args...)
}
