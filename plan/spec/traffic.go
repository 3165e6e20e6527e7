package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/units"
)

// Traffic sends from nodes for a while: UDP datagrams to other nodes, which
// nothing holds back, or PFC frames to the switches that the nodes are joined to.
// It says nothing about what arrives; checks of packets do.
type Traffic struct {
	// Name is for log files.
	Name string `yaml:"name" json:"name"`
	// From are the nodes that send, names or globs.
	From []string `yaml:"from" json:"from"`
	// To are the nodes that each of From sends datagrams to, itself left out.
	To []string `yaml:"to,omitempty" json:"to,omitempty"`
	// Shift has each node of From send to the one that is so many places further
	// on among them, in the plan's order and round.
	Shift int `yaml:"shift,omitempty" json:"shift,omitempty" jsonschema:"minimum=1,maximum=4096"`
	// Pause sends PFC frames instead, by the node's first NIC.
	Pause *PauseFrames `yaml:"pause,omitempty" json:"pause,omitempty"`
	// For is how long.
	For units.Duration `yaml:"for" json:"for"`
	// Rate is that of the frames that each node sends, Ethernet headers
	// included. Default: as fast as its NIC takes them.
	Rate units.Rate `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Size is the length of a frame with its Ethernet header. Default 1000B.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Flows is how many source ports a node uses for each other node, in turn.
	// Default 1.
	Flows int `yaml:"flows,omitempty" json:"flows,omitempty" jsonschema:"minimum=1,maximum=256"`
	// DSCP is that of the datagrams. Default 0.
	DSCP int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63"`
	// ECN says that the datagrams are of an ECN-capable transport, ECT(0).
	ECN bool `yaml:"ecn,omitempty" json:"ecn,omitempty"`
	// Background lets the next step start at once.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
}

// PauseFrames are PFC frames (IEEE 802.1Qbb), sent again before each runs out
// and ended by one that lets the far end go on.
type PauseFrames struct {
	// Priorities are those that are paused.
	Priorities []int `yaml:"priorities" json:"priorities"`
	// Quanta is what each frame asks for, in times of 512 bits. Default 65535.
	Quanta int `yaml:"quanta,omitempty" json:"quanta,omitempty" jsonschema:"minimum=1,maximum=65535"`
}

// Sizes of frames: 16 bytes of payload tell datagrams apart.
const (
	minTraffic     = units.Bytes(14 + 20 + 8 + 16)
	maxTraffic     = units.Bytes(14 + 65535)
	defaultTraffic = units.Bytes(1000)
	maxQuanta      = 65535
)

func (s *Traffic) setDefaults() {
	s.Size = cmp.Or(s.Size, defaultTraffic)
	s.Flows = cmp.Or(s.Flows, 1)
	if s.Pause != nil {
		s.Pause.Quanta = cmp.Or(s.Pause.Quanta, maxQuanta)
	}
}

func (c *checker) traffic(at string, s *Traffic, names map[string]string) {
	c.unique(at+".name", s.Name, names)
	c.exactlyOne(at, *s, "to", "shift", "pause")
	for i, node := range s.From {
		c.pattern(c.report, fmt.Sprintf("%s.from[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	for i, node := range s.To {
		c.pattern(c.report, fmt.Sprintf("%s.to[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	c.between(at+".size", s.Size, minTraffic, maxTraffic)
	if s.Pause != nil {
		c.priorities(at+".pause.priorities", s.Pause.Priorities)
		for _, key := range []string{"rate", "size", "flows", "dscp", "ecn"} {
			if c.t.Source.Has(at + "." + key) {
				c.reportKey(at+"."+key, key+" is of datagrams", "remove it, or pause")
			}
		}
	}
}
