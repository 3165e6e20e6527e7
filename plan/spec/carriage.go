package spec

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/plan/schedule"
)

// Carriage is which ranks a collective, a training job or messages use, and how their data is carried.
type Carriage struct {
	// Ranks lists the testbed's ranks that take part, in the order of the job's own ranks: with [4, 5], rank
	// 4 of the testbed is rank 0 of the job. So several jobs can share a fabric. Default: all ranks, and for
	// a training job by placement.
	Ranks []int `yaml:"ranks,omitempty" json:"ranks,omitempty" unit:"none"`
	// RD configures the reliable datagrams of transport: rd. Default: the defaults of its keys.
	RD *RD `yaml:"rd,omitempty" json:"rd,omitempty"`
	// RoCE configures the queue pairs of transport: roce. Default: the defaults of its keys.
	RoCE *RoCE `yaml:"roce,omitempty" json:"roce,omitempty"`
	// DSCP is the DSCP of the packets of transport: tcp, rd or roce. Switches put packets of different DSCPs
	// into different priorities. Default: the transport's, which is 0 for tcp, 35 for rd, and 26 for roce.
	// Acknowledgements of rd and CNPs keep theirs.
	DSCP int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=1,maximum=63" unit:"none"`
	// Family is the IP version, 4 (default) or 6.
	Family string `yaml:"ip,omitempty" json:"ip,omitempty" scalar:"any" jsonschema:"enum=4,enum=6"`
}

func (c *Carriage) setDefaults() { c.Family = cmp.Or(c.Family, "4") }

// Version returns the IP version as a number.
func (c *Carriage) Version() int {
	if c.Family == "6" {
		return 6
	}
	return 4
}

const defaultTransport = "tcp"

// Bypassing are the transports that can reach NICs past the kernel.
var Bypassing = []string{"rd", "roce", InSwitch}

// transport returns the workload's transport, or the default of its algorithm.
func (w *Workload) transport() string {
	if w.Algorithm == schedule.InNetwork {
		return cmp.Or(w.Transport, InSwitch)
	}
	return cmp.Or(w.Transport, defaultTransport)
}

// MayDrop reports whether the transport may leave out a share of the data.
func (c *Carriage) MayDrop() bool { return c.RD.MayDrop() }

// carriage checks that the settings belong to the transport and that their values are valid.
func (c *checker) carriage(at, transport string, s *Carriage) {
	for i, rank := range s.Ranks {
		if rank < 0 || slices.Contains(s.Ranks[:i], rank) {
			c.Report(fmt.Sprintf("%s.ranks[%d]", at, i),
				fmt.Sprintf("rank %d is negative or named twice", rank),
				"name each of the testbed's ranks once, from 0")
		}
	}
	c.rd(at+".rd", transport, s.RD)
	c.roce(at+".roce", transport, s.RoCE)
	if s.DSCP != 0 && !slices.Contains([]string{"tcp", "rd", "roce"}, transport) {
		c.ReportKey(at+".dscp", "a DSCP of transport "+transport,
			"take transport: tcp, rd or roce, or remove dscp:")
	}
}

// nothingDroppable reports droppable bytes of a workload that needs all of its data.
func (c *checker) nothingDroppable(at string, s *Carriage, of, instead string) {
	if s.MayDrop() {
		c.ReportKey(at+".rd.droppable", "droppable bytes of "+of, "remove it, or take "+instead)
	}
}
