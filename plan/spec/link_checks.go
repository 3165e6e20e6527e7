package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/printable"
)

// LatencyCheck judges the time from a packet's departure at the NIC of its source until its arrival at
// the NIC of its destination. A percentile is by nearest rank: p99 of n packets is the time of the
// packet with rank 0.99 n, rounded up. A packet that did not arrive took longer than any bound.
type LatencyCheck struct {
	// From are the nodes that send. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To are the nodes that receive. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Workload is the workload whose packets count. Default: all packets.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
	// Per judges the packets of each flow or each pair of nodes by itself. Default: all together.
	Per string `yaml:"per,omitempty" json:"per,omitempty" jsonschema:"enum=flow,enum=pair"`
	// P50 bounds the median, such as "<= 100us". Default: not judged.
	P50 string `yaml:"p50,omitempty" json:"p50,omitempty" unit:"duration"`
	// P99 bounds the 99th percentile. Default: not judged.
	P99 string `yaml:"p99,omitempty" json:"p99,omitempty" unit:"duration"`
	// P999 bounds the 99.9th percentile. Default: not judged.
	P999 string `yaml:"p999,omitempty" json:"p999,omitempty" unit:"duration"`
	// Max bounds the longest time. Default: not judged.
	Max string `yaml:"max,omitempty" json:"max,omitempty" unit:"duration"`
}

// LinkBytesCheck judges the bytes of frames, from their Ethernet header on, that were sent into each
// direction of links.
type LinkBytesCheck struct {
	// Link is the name of a link or a glob, such as "leaf1--spine*", and "a-to-b" or "b-to-a" after it
	// for one direction. Default: all links.
	Link string `yaml:"link,omitempty" json:"link,omitempty" names:"link"`
	// Workload is the workload whose packets count. Default: all packets.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
	// Is bounds the bytes of each direction, such as "<= 40MB".
	Is string `yaml:"is" json:"is" unit:"size"`
}

// FlowsCheck judges the number of flows that passed the selected ports, in either direction.
type FlowsCheck struct {
	// At names ports as taps do: a switch, a node, node:port or a glob of these. Default "*".
	At string `yaml:"at,omitempty" json:"at,omitempty" names:"port"`
	// From names the nodes from which the flows come. Default "*".
	From string `yaml:"from,omitempty" json:"from,omitempty" names:"node"`
	// To names the nodes to which the flows go. Default "*".
	To string `yaml:"to,omitempty" json:"to,omitempty" names:"node"`
	// Workload is the workload whose packets count. Default: all packets.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"workload"`
	// Count bounds the number of flows, such as ">= 16". A flow that passes several ports counts once.
	Count string `yaml:"count" json:"count" unit:"flows"`
}

// LinkTarget splits the text of LinkBytesCheck.Link into the link's name or glob and the direction: "a-to-b",
// "b-to-a", or empty for both.
func LinkTarget(text string) (link, direction string) { return splitWhere(cmp.Or(text, "*")) }

func (k *LatencyCheck) form(c *checker, at string) {
	for key, text := range map[string]string{"p50": k.P50, "p99": k.P99, "p999": k.P999, "max": k.Max} {
		if b, err := ParseBound(text, DurationBound); err == nil && b.Op == "==" {
			c.Report(at+"."+key, fmt.Sprintf("a latency of exactly %s", printable.Clip(text[2:])),
				`want >=, >, <= or <, as in "<= 200us"`)
		}
	}
	c.needs(at, `p99: "<= 200us"`, k.P50, k.P99, k.P999, k.Max)
}
