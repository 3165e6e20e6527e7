package spec

import (
	"cmp"
	"fmt"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// Probe sends telemetry probes from a node or NIC to another and judges the telemetry that the soft
// switches on the way wrote into them. Some switch needs int: true.
type Probe struct {
	// Name is the name of the file with the telemetry, probes/NAME.json.
	Name string `yaml:"name" json:"name"`
	// From is the node that sends, or NODE:NIC, the NIC by which the probes leave.
	From string `yaml:"from" json:"from"`
	// To is the node that receives, or NODE:NIC, the NIC to whose address the probes are sent.
	To string `yaml:"to" json:"to"`
	// Count is the number of probes. Default 10.
	Count int `yaml:"count,omitempty" json:"count,omitempty" jsonschema:"minimum=1,maximum=1000000" unit:"probes"`
	// Interval is the time between two probes. Default 10ms.
	Interval units.Duration `yaml:"interval,omitempty" json:"interval,omitempty"`
	// Flows is the number of source ports that take turns, so that probes spread over paths as flows
	// do. Default 1.
	Flows int `yaml:"flows,omitempty" json:"flows,omitempty" jsonschema:"minimum=1,maximum=64" unit:"source ports"`
	// DSCP is the DSCP of the probes, which decides their priority. Default 0.
	DSCP int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" unit:"none"`
	// Family is the IP version, 4 (default) or 6.
	Family string `yaml:"ip,omitempty" json:"ip,omitempty" scalar:"any" jsonschema:"enum=4,enum=6"`
	// Arrived bounds the number of probes that arrive. Default: all arrive.
	Arrived string `yaml:"arrived,omitempty" json:"arrived,omitempty" unit:"probes"`
	// Paths bounds the number of paths that probes take. Default: not judged.
	Paths string `yaml:"paths,omitempty" json:"paths,omitempty" unit:"paths"`
	// Queue bounds the longest queue that a probe left behind at a switch. Default: not judged.
	Queue string `yaml:"queue,omitempty" json:"queue,omitempty" unit:"size"`
	// Timeout is the time after which the step fails. Default 1m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// maxProbeInterval is the maximum time between two probes.
const maxProbeInterval = units.Duration(60e9)

// Traits implements Action.
func (p *Probe) Traits() Traits { return Traits{Name: p.Name, Timeout: p.Timeout, DSCP: &p.DSCP} }

// Nodes returns the names of the nodes that send and receive.
func (p *Probe) Nodes() (from, to string) {
	from, _, _ = strings.Cut(p.From, ":")
	to, _, _ = strings.Cut(p.To, ":")
	return from, to
}

func (p *Probe) setDefaults() {
	p.Count = cmp.Or(p.Count, 10)
	p.Interval = cmp.Or(p.Interval, units.Duration(10e6))
	p.Flows = cmp.Or(p.Flows, 1)
	p.Family = cmp.Or(p.Family, "4")
	p.Timeout = cmp.Or(p.Timeout, defaultExecTimeout)
}

func (p *Probe) check(c *checker, at string, _ int) {
	c.unique(at+".name", p.Name)
	if from, to := p.Nodes(); from != "" && from == to {
		c.Report(at+".to", fmt.Sprintf("probes from %s to itself", printable.Clip(from)), "name another node")
	}
	if p.Interval > maxProbeInterval {
		c.Report(at+".interval", fmt.Sprintf("interval is %s", p.Interval),
			fmt.Sprintf("want at most %s", maxProbeInterval))
	}
	c.positive(at+".interval", uint64(p.Interval), "interval is 0", "want a duration such as 10ms")
	c.positive(at+".timeout", uint64(p.Timeout), "timeout is 0", "want a duration such as 1m")
	c.bound(at+".arrived", p.Arrived, CountBound)
	c.bound(at+".paths", p.Paths, CountBound)
	c.bound(at+".queue", p.Queue, BytesBound)
}
