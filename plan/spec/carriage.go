package spec

import "cmp"

// Carriage is how the transport of a collective, a training job or messages behaves, and
// over which IP it goes.
type Carriage struct {
	// RD is how reliable datagrams behave, with transport: rd.
	RD *RD `yaml:"rd,omitempty" json:"rd,omitempty"`
	// RoCE is how queue pairs behave, with transport: roce.
	RoCE *RoCE `yaml:"roce,omitempty" json:"roce,omitempty"`
	// Family is the IP version, 4 (default) or 6.
	Family string `yaml:"ip,omitempty" json:"ip,omitempty" scalar:"any" jsonschema:"enum=4,enum=6"`
}

func (c *Carriage) setDefaults() { c.Family = cmp.Or(c.Family, "4") }

// Version is the IP version as a number.
func (c *Carriage) Version() int {
	if c.Family == "6" {
		return 6
	}
	return 4
}

// MayDrop says that the transport may leave something out.
func (c *Carriage) MayDrop() bool { return c.RD.MayDrop() }

// carriage checks settings against the transport that they are for.
func (c *checker) carriage(at, transport string, s *Carriage) {
	c.rd(at+".rd", transport, s.RD)
	c.roce(at+".roce", transport, s.RoCE)
}

// nothingDroppable refuses to leave something out of what is needed whole.
func (c *checker) nothingDroppable(at string, s *Carriage, of, instead string) {
	if s.MayDrop() {
		c.reportKey(at+".rd.droppable", "droppable bytes of "+of, "remove it, or take "+instead)
	}
}
