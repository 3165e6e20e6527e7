package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/units"
)

// Traffic sends frames from nodes for a while: UDP datagrams to other nodes without congestion
// control, or PFC frames to the switches to which the nodes are connected. It does not report which
// frames arrive. Checks of packets do.
type Traffic struct {
	// Name is the name of the log files.
	Name string `yaml:"name" json:"name"`
	// From lists the nodes that send, by names or globs.
	From []string `yaml:"from" json:"from" names:"node"`
	// To lists the nodes to which each node of from sends datagrams, except itself.
	To []string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Shift makes each node of from send to the node that is this many places further on in from.
	// The order is the plan's, and it wraps around.
	Shift int `yaml:"shift,omitempty" json:"shift,omitempty" jsonschema:"minimum=1,maximum=4096" unit:"nodes"`
	// Pause sends PFC frames instead, from the node's first NIC.
	Pause *PauseFrames `yaml:"pause,omitempty" json:"pause,omitempty"`
	// For is the duration of the traffic.
	For units.Duration `yaml:"for" json:"for"`
	// Rate is the rate of the frames that each node sends, Ethernet headers included. Default: as
	// fast as its NIC accepts them.
	Rate units.Rate `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Size is the length of a frame with its Ethernet header. Default 1000B.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Flows is the number of source ports that a node uses, in turn, for each other node. Default
	// 1.
	Flows int `yaml:"flows,omitempty" json:"flows,omitempty" jsonschema:"minimum=1,maximum=256" unit:"source ports"`
	// DSCP is the DSCP of the datagrams. Default 0.
	DSCP int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" unit:"none"`
	// ECN sets ECT(0) in the datagrams: the transport is ECN-capable. Default false.
	ECN bool `yaml:"ecn,omitempty" json:"ecn,omitempty"`
	// Background starts the next step at once. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
}

// PauseFrames sends PFC frames (IEEE 802.1Qbb). Each frame is sent again before its pause runs out.
// The last frame lets the far end continue.
type PauseFrames struct {
	// Priorities lists the priorities that are paused.
	Priorities []int `yaml:"priorities" json:"priorities" unit:"none"`
	// Quanta is the pause time that each frame requests, in units of 512 bit times. Default 65535.
	Quanta int `yaml:"quanta,omitempty" json:"quanta,omitempty" jsonschema:"minimum=1,maximum=65535" unit:"512 bit times"`
}

// Sizes of frames. 16 bytes of payload identify a datagram.
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

// Traits implements Action.
func (s *Traffic) Traits() Traits {
	traits := Traits{Name: s.Name, Background: s.Background}
	if s.Pause == nil {
		traits.DSCP = &s.DSCP
	}
	return traits
}

func (s *Traffic) check(c *checker, at string, _ int) {
	c.unique(at+".name", s.Name)
	c.exactlyOne(at, *s, "to", "shift", "pause")
	for i, node := range s.From {
		c.pattern(c.Report, fmt.Sprintf("%s.from[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	for i, node := range s.To {
		c.pattern(c.Report, fmt.Sprintf("%s.to[%d]", at, i), node, "node", nodeName, nodeNameForm)
	}
	c.between(at+".size", s.Size, minTraffic, maxTraffic)
	if s.Pause != nil {
		c.priorities(at+".pause.priorities", s.Pause.Priorities)
		for _, key := range []string{"rate", "size", "flows", "dscp", "ecn"} {
			if c.Source.Has(at + "." + key) {
				c.ReportKey(at+"."+key, key+" applies only to datagrams", "remove it, or remove pause")
			}
		}
	}
}
