package spec

import (
	"slices"

	"railbed/fabric/units"
)

// Rules of a RoCECheck.
const (
	RoCERuleICRC   = "icrc"          // every packet has its invariant CRC right
	RoCERulePSN    = "psn"           // requests are numbered one after the other
	RoCERuleAcks   = "acks"          // what came is acknowledged, and nothing else
	RoCERuleWrites = "writes"        // messages are cut as their RETH and the path MTU say
	RoCERuleGoBack = "go-back-n"     // losses are repaired by going back
	RoCERuleCNP    = "cnp"           // marks are told to the sender
	RoCERuleRate   = "rate-decrease" // senders that are told slow down
)

// RoCECheck holds a rule of RoCEv2 over every connection, whoever speaks it. Each rule
// has a precondition, such as a loss or a mark; where it does not hold the check is
// INCONCLUSIVE and says NOT-APPLICABLE with the count.
type RoCECheck struct {
	// Rule is what must hold: icrc (every packet has its invariant CRC right), psn
	// (requests are numbered one after the other, and sent again as they were), acks
	// (what came is acknowledged, and nothing else), writes (messages are cut as their
	// RETH and the path MTU say), go-back-n (losses are repaired by going back), cnp
	// (marks are told to the sender), or rate-decrease (senders that are told slow
	// down).
	Rule string `yaml:"rule" json:"rule" jsonschema:"enum=icrc,enum=psn,enum=acks,enum=writes,enum=go-back-n,enum=cnp,enum=rate-decrease"`
	// Within is for cnp the time around a mark in which a CNP must leave, default 50us;
	// and for rate-decrease the time before and after a CNP of which the bytes are
	// compared, default 1ms. Other rules have none.
	Within units.Duration `yaml:"within,omitempty" json:"within,omitzero"`
}

// roceCheck checks what its types do not say.
func (c *checker) roceCheck(at string, k *RoCECheck) {
	if k == nil || k.Within == 0 || c.broken(at) {
		return
	}
	if !slices.Contains([]string{RoCERuleCNP, RoCERuleRate}, k.Rule) {
		c.report(at+".within", "rule "+clipped(k.Rule)+" has no time", "remove it")
	}
}
