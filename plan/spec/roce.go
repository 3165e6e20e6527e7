package spec

import (
	"fmt"
	"slices"
	"time"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// RoCE configures the queue pairs of a step.
type RoCE struct {
	// Repeat is the retransmission after a loss. go-back-n (default), as in rdma_rxe and most NICs,
	// sends again everything from the loss on. selective sends only the lost packets again, which
	// only Railbed's own endpoints support.
	Repeat string `yaml:"repeat,omitempty" json:"repeat,omitempty" jsonschema:"enum=go-back-n,enum=selective"`
	// Congestion is the reaction of senders to marks: none (default) or dcqcn. With dcqcn receivers
	// send CNPs and senders slow down. Switches mark packets if they have ecn. The periods of dcqcn
	// are the paper's 55 us on links of 10 Gbit/s or more. On slower links they last as many
	// packets: 11 ms at 50 Mbit/s.
	Congestion string `yaml:"congestion,omitempty" json:"congestion,omitempty" jsonschema:"enum=none,enum=dcqcn"`
	// Timeout is the time for which a queue pair waits for an answer before it sends again, 1ms to
	// 2s. Default 67ms, InfiniBand's code 14. That is long for the links of NICs and can be
	// short for slow links: a queue of 400 KB takes 65 ms at 50 Mbit/s.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitzero"`
}

// Bounds of RoCE.Timeout. A peer that is silent for 5 s has failed.
const (
	leastRoCETimeout = units.Duration(time.Millisecond)
	mostRoCETimeout  = units.Duration(2 * time.Second)
)

// roce checks conditions on RoCE that struct tags cannot express.
func (c *checker) roce(at, transport string, r *RoCE) {
	switch {
	case r == nil:
	case transport != "roce":
		c.ReportKey(at, "roce configures queue pairs, and the transport is "+transport,
			"want transport: roce, or remove it")
	case c.Source.Has(at+".timeout") && (r.Timeout < leastRoCETimeout || r.Timeout > mostRoCETimeout):
		c.Report(at+".timeout", fmt.Sprintf("%s.timeout is %s", at, r.Timeout), "want 1ms to 2s")
	}
}

// Values of the settings of RoCE.
const (
	RoCEGoBackN   = "go-back-n"
	RoCESelective = "selective"
	RoCEDCQCN     = "dcqcn"
	RoCENone      = "none"
)

// Rules of a RoCECheck. The comment of RoCECheck.Rule states what each requires.
const (
	RoCERuleICRC   = "icrc"
	RoCERulePSN    = "psn"
	RoCERuleAcks   = "acks"
	RoCERuleWrites = "writes"
	RoCERuleGoBack = "go-back-n"
	RoCERuleCNP    = "cnp"
	RoCERuleRate   = "rate-decrease"
)

// RoCECheck checks a rule of RoCEv2 on every connection, whatever implementation speaks it. Each
// rule has a precondition, such as a loss or a mark. If it is not met, the check is INCONCLUSIVE
// and reports NOT-APPLICABLE with the count.
type RoCECheck struct {
	// Rule is the rule that must hold.
	//
	//   - icrc: every packet has a correct invariant CRC.
	//   - psn: requests are numbered consecutively, and are sent again unchanged.
	//   - acks: requests that arrived are acknowledged, and nothing else.
	//   - writes: messages are cut as their RETH and the path MTU require.
	//   - go-back-n: losses are repaired by go-back-n.
	//   - cnp: receivers notify the sender of marks.
	//   - rate-decrease: senders slow down when they receive a CNP.
	Rule string `yaml:"rule" json:"rule" jsonschema:"enum=icrc,enum=psn,enum=acks,enum=writes,enum=go-back-n,enum=cnp,enum=rate-decrease" names:"word"`
	// Within is for cnp the time around a mark in which a CNP must leave. For rate-decrease it is the
	// time before and after a CNP in which the bytes are compared. Other rules have none. Default: 50us
	// for cnp, 1ms for rate-decrease.
	Within units.Duration `yaml:"within,omitempty" json:"within,omitzero"`
	// Again bounds for psn the retransmissions: how many requests were sent again, such as "== 0".
	// Requests are sent again after a loss or because an answer took too long. Default: any number.
	Again string `yaml:"again,omitempty" json:"again,omitempty" unit:"requests"`
}

func (k *RoCECheck) form(c *checker, at string) {
	if c.Broken(at) {
		return
	}
	if k.Again != "" && k.Rule != RoCERulePSN {
		c.Report(at+".again", "rule "+printable.Clip(k.Rule)+" does not count repeated requests",
			"remove it, or judge rule psn")
	}
	if k.Within != 0 && !slices.Contains([]string{RoCERuleCNP, RoCERuleRate}, k.Rule) {
		c.Report(at+".within", "rule "+printable.Clip(k.Rule)+" does not use within", "remove it")
	}
}
