package spec

import (
	"cmp"
	"slices"
)

// Carriage configures the transport and the IP version of a collective, a training job or messages.
type Carriage struct {
	// RD configures the reliable datagrams of transport: rd.
	RD *RD `yaml:"rd,omitempty" json:"rd,omitempty"`
	// RoCE configures the queue pairs of transport: roce.
	RoCE *RoCE `yaml:"roce,omitempty" json:"roce,omitempty"`
	// DSCP is the DSCP of the packets of transport: tcp, rd or roce. Switches put packets of different DSCPs
	// into different priorities. Default: the transport's, which is 0 for tcp, 35 for rd, and 26 for roce.
	// Acknowledgements of rd and CNPs keep theirs.
	DSCP int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=1,maximum=63"`
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

// MayDrop reports whether the transport may leave out a share of the data.
func (c *Carriage) MayDrop() bool { return c.RD.MayDrop() }

// carriage checks that the settings belong to the transport and that their values are valid.
func (c *checker) carriage(at, transport string, s *Carriage) {
	c.rd(at+".rd", transport, s.RD)
	c.roce(at+".roce", transport, s.RoCE)
	if s.DSCP != 0 && !slices.Contains([]string{"tcp", "rd", "roce"}, transport) {
		c.reportKey(at+".dscp", "a DSCP of transport "+transport,
			"take transport: tcp, rd or roce, or remove dscp:")
	}
}

// nothingDroppable reports droppable bytes of a workload that needs all of its data.
func (c *checker) nothingDroppable(at string, s *Carriage, of, instead string) {
	if s.MayDrop() {
		c.reportKey(at+".rd.droppable", "droppable bytes of "+of, "remove it, or take "+instead)
	}
}
