package report

import (
	"fmt"

	"railbed/internal/plural"
)

// Conduct holds observations of the ranks about themselves and each other, for any workload.
type Conduct struct {
	// Straggler is the rank for which the others waited. It is absent if no rank stands out.
	Straggler *Straggler `json:"straggler,omitempty"`
	// Pace is the lateness of reliable datagrams: how far the latest of the ranks was behind its
	// schedule, as the ranks report.
	Pace Pace `json:"pace,omitzero"`
	// Repeats are the packets that ranks sent again over reliable datagrams.
	Repeats Repeats `json:"repeats,omitzero"`
	// RoCE counts packets of the ranks' queue pairs. It is absent without transport roce.
	RoCE *RoCE `json:"roce,omitempty"`
	// Load is how busy the host and the links were. It is absent if the operations took a short time.
	Load *Load `json:"load,omitempty"`
}

// Notes are sentences for people about what stands out.
func (c *Conduct) Notes() (notes []string) {
	if c.Straggler != nil {
		notes = append(notes, c.Straggler.String())
	}
	if c.Load != nil && c.Load.Bound() {
		notes = append(notes, c.Load.String())
	}
	if note := c.Repeats.Note(); note != "" {
		notes = append(notes, note)
	}
	if c.RoCE != nil {
		notes = append(notes, c.RoCE.Notes()...)
	}
	return notes
}

// Load is how busy the processors and the links were in the time of a workload's timed operations, everything
// else that ran included. Shares are from 0 to 1.
type Load struct {
	// CPUs is the share of the processors' time in which they worked, or the hypervisor took them. Own is the
	// share in which they worked for the testbed: for the programs in nodes, and the thread that moves
	// frames. Others is the share that programs outside the run had, over the whole run. The rest is the
	// kernel's. Processors is their number.
	CPUs       float64 `json:"cpus"`
	Own        float64 `json:"own"`
	Others     float64 `json:"others,omitempty"`
	Processors int     `json:"processors,omitempty"`
	// Sent is the rate at which all NICs of nodes together sent, in bit/s of frames.
	Sent float64 `json:"sent_bit_s"`
	// Link and Direction are the busiest direction of a link, and Use is the share of its rate that it
	// carried.
	Link      string  `json:"link"`
	Direction string  `json:"direction"`
	Use       float64 `json:"use"` // share of the rate that this direction carried
}

// Processors are the bound of a workload if they are busy for this share of the time, and if each link
// carries less than this share of its rate.
const (
	boundCPUs = 0.90
	boundLink = 0.80
)

// Bound reports whether the processors, and not the network, bound the time of the operations.
func (l *Load) Bound() bool { return l.CPUs >= boundCPUs && l.Use < boundLink }

// String is a sentence for people about a bound.
func (l *Load) String() string {
	if n := float64(l.Processors); OthersCompete(l.Others*n, (1-l.CPUs)*n) {
		return fmt.Sprintf("other programs had %.0f%% of the time of this machine's processors, and the "+
			"testbed's programs %.0f%%: times are not those of the network", 100*l.Others, 100*l.Own)
	}
	return fmt.Sprintf("this machine's processors were the bound, and not the network: they were busy for "+
		"%.0f%% of the time, and the busiest link, %s %s, carried %.0f%% of its rate; dilation: gives them "+
		"more time", 100*l.CPUs, l.Link, l.Direction, 100*l.Use)
}

// Straggler is a rank that worked while the others waited. The computation of a training job does
// not count as work of a rank: it only takes time.
type Straggler struct {
	Rank int    `json:"rank"` // its number
	Node string `json:"node"` // its node
	// Worked is the share of the timed operations in which the rank did not wait for others. Others
	// is the greatest such share of another rank.
	Worked float64 `json:"worked"`
	Others float64 `json:"others"`
}

// String names the rank and the shares.
func (s Straggler) String() string {
	return fmt.Sprintf("the ranks waited for rank %d on %s: it worked %.0f%% of the time, the others at "+
		"most %.0f%%", s.Rank, s.Node, 100*s.Worked, 100*s.Others)
}

// Lost returns, for people, the number of bytes that were left out. It is empty if no byte may be
// left out.
func (l LeftOut) Lost() string {
	if l.MayMiss == 0 {
		return ""
	}
	return plural.Text("%d bytes were lost and left out; up to %d may be", l.Missing, l.MayMiss)
}
