package spec

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/internal/units"
)

// RoCE is how the queue pairs of a step behave.
type RoCE struct {
	// Repeat is what follows a loss: go-back-n (default), as rdma_rxe and most NICs do
	// it, all from what was lost on; or selective, what was lost alone, which only our
	// own endpoints understand.
	Repeat string `yaml:"repeat,omitempty" json:"repeat,omitempty" jsonschema:"enum=go-back-n,enum=selective"`
	// Congestion is what senders do about marks: none (default), or dcqcn: receivers
	// tell them by CNPs, and they slow down. Switches mark where they have ecn. Its
	// periods are the paper's, 55 us, on links of 10 Gbit/s or more, and as many
	// packets long on slower ones: 11 ms at 50 Mbit/s.
	Congestion string `yaml:"congestion,omitempty" json:"congestion,omitempty" jsonschema:"enum=none,enum=dcqcn"`
	// Timeout is after how long without an answer a queue pair sends again, 1ms to 2s.
	// Default 67ms, code 14 of InfiniBand's, which is long for the links of NICs and can
	// be short for slow ones: a queue of 400 KB takes 65 ms at 50 Mbit/s.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitzero"`
}

// Bounds of RoCE.Timeout. Peers that are silent for 5 s have failed.
const (
	leastRoCETimeout = units.Duration(time.Millisecond)
	mostRoCETimeout  = units.Duration(2 * time.Second)
)

// roce checks what its types do not say.
func (c *checker) roce(at, transport string, r *RoCE) {
	switch {
	case r == nil:
	case transport != "roce":
		c.reportKey(at, "roce is how queue pairs behave, and the transport is "+cmp.Or(transport, "tcp"),
			"want transport: roce, or remove it")
	case c.t.Source.Has(at+".timeout") && (r.Timeout < leastRoCETimeout || r.Timeout > mostRoCETimeout):
		c.report(at+".timeout", fmt.Sprintf("%s.timeout is %s", at, r.Timeout), "want 1ms to 2s")
	}
}

// What RoCE can say.
const (
	RoCEGoBackN   = "go-back-n"
	RoCESelective = "selective"
	RoCEDCQCN     = "dcqcn"
	RoCENone      = "none"
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
	// Again is for psn how many requests were sent again, such as "== 0": after a loss,
	// or because an answer took too long. Default: any number.
	Again string `yaml:"again,omitempty" json:"again,omitempty"`
}

// roceCheck checks what its types do not say.
func (c *checker) roceCheck(at string, k *RoCECheck) {
	if k == nil || c.broken(at) {
		return
	}
	if c.bound(at+".again", k.Again, CountBound); k.Again != "" && k.Rule != RoCERulePSN {
		c.report(at+".again", "rule "+clipped(k.Rule)+" counts nothing that is sent again",
			"remove it, or judge rule psn")
	}
	if k.Within != 0 && !slices.Contains([]string{RoCERuleCNP, RoCERuleRate}, k.Rule) {
		c.report(at+".within", "rule "+clipped(k.Rule)+" has no time", "remove it")
	}
}
