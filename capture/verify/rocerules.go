package verify

import (
	"fmt"
	"time"

	"railbed/internal/infiniband"
	"railbed/plan/spec"
)

// roceKey names a sender and a queue pair to which it sends: one direction of a connection.
type roceKey struct {
	addresses Addresses
	qp        infiniband.QPN
}

// roceKeyOf returns the key of a packet.
func roceKeyOf(p *Packet) roceKey {
	return roceKey{p.Addresses, p.RoCE.BTH.DestQP}
}

// newRoCE makes the check of a rule.
func newRoCE(k *spec.RoCECheck) (Check, error) {
	within := time.Duration(k.Within)
	switch k.Rule {
	case spec.RoCERuleICRC:
		return NewRoCEICRC(), nil
	case spec.RoCERulePSN:
		return NewRoCEPSN(bound(k.Again, spec.CountBound)), nil
	case spec.RoCERuleAcks:
		return NewRoCEAcks(), nil
	case spec.RoCERuleWrites:
		return NewRoCEWrites(), nil
	case spec.RoCERuleGoBack:
		return NewRoCEGoBack(), nil
	case spec.RoCERuleCNP:
		return newRoCECNP(within), nil
	case spec.RoCERuleRate:
		return newRoCERate(within), nil
	}
	return nil, fmt.Errorf("check of packets: nothing judges rule %q of RoCEv2", k.Rule)
}

// roceName returns the name of the check of a rule.
func roceName(rule string) string { return "roce " + rule }
