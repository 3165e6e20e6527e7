package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/units"
	"railbed/internal/wire"
)

// RD configures the reliable datagrams of a step. A setting that is left out has the transport's
// default.
type RD struct {
	// Engines is the number of engines that work in parallel on each rank's NIC. Each has its own
	// ports and sequence spaces. Messages go to them in turn. Default 1.
	Engines int `yaml:"engines,omitempty" json:"engines,omitempty" jsonschema:"minimum=1,maximum=16" unit:"engines"`
	// Paths is the number of source ports of each engine, at most 128 for all engines of a rank
	// together. Default 8.
	Paths int `yaml:"paths,omitempty" json:"paths,omitempty" jsonschema:"minimum=1,maximum=128" unit:"source ports"`
	// Spray is the method by which packets are spread over the paths: oblivious (default), bitmap,
	// reps, mixed, weighted by weights, or pinned to one path.
	Spray string `yaml:"spray,omitempty" json:"spray,omitempty" jsonschema:"enum=oblivious,enum=bitmap,enum=reps,enum=mixed,enum=pinned,enum=weighted"`
	// Weights are the shares of the paths, one per path, for spray: weighted. Default none.
	Weights []int `yaml:"weights,omitempty" json:"weights,omitempty" unit:"none"`
	// Grain is the number of consecutive packets on one path. 1 sprays each packet. With more,
	// several packets can leave in one system call. Default 4.
	Grain int `yaml:"grain,omitempty" json:"grain,omitempty" jsonschema:"minimum=1,maximum=64" unit:"packets"`
	// Droppable is the share of each message that may be lost. Lost packets within that share are
	// not sent again, and the receiver knows which parts are missing. Default 0.
	//
	// In an all-reduce it applies to messages with partial sums, and results arrive whole. In a
	// training job it applies to the partial sums of gradients among data parallel ranks. Whole
	// packets are left out: 2% of a message of 256 KiB, the longest, is one packet of 4 KiB, and 2%
	// of 128 KiB is none.
	Droppable units.Ratio `yaml:"droppable,omitempty" json:"droppable,omitzero"`
	// Encrypt encrypts and authenticates every packet and the messages between ranks and an arbiter.
	// The workload draws its own secret. Without key-log the secret is written nowhere. Default false.
	Encrypt bool `yaml:"encrypt,omitempty" json:"encrypt,omitempty"`
	// ReadableHeaders leaves the headers of encrypted packets readable and authenticated. Only the
	// payload is hidden. Default false.
	ReadableHeaders bool `yaml:"readable-headers,omitempty" json:"readable-headers,omitempty"`
	// Control limits the sending rate of ranks below the rate of their NICs.
	//
	//   - line (default): no limit.
	//   - nscc: reacts to delays and marks.
	//   - learned: reacts to delays and marks by a trained policy.
	//   - offline: uses rates that were computed before the run.
	//   - arbiter: sends in timeslots that a process on rank 0's node assigns (Fastpass).
	Control string `yaml:"control,omitempty" json:"control,omitempty" jsonschema:"enum=line,enum=nscc,enum=offline,enum=arbiter,enum=learned"`
	// Rates is the file of rates for control: offline, as "railbed plan --rates" prints them. The
	// path is relative to this file. Default: max-min rates for the workload's pattern. They use
	// the bytes of each pair where these are known, and are even among pairs that send messages. An
	// all-to-all with algorithm: pairwise has the rates of conflict-free phases, which the run then
	// uses as its phases.
	Rates string `yaml:"rates,omitempty" json:"rates,omitempty"`
	// KeyLog writes the keys for the encrypted packets of the recordings to NAME.keys beside them. NAME
	// is the workload's name. Checks then read the packets that the capture's snaplen kept whole.
	// Default false.
	KeyLog bool `yaml:"key-log,omitempty" json:"key-log,omitempty"`
}

// MayDrop reports whether a share of the data may be left out. A nil RD has the defaults, which
// drop nothing.
func (r *RD) MayDrop() bool { return r != nil && !r.Droppable.IsZero() }

// PacingCheck compares packets of rd with the schedule of their rate. No packet of the workload may leave
// more than one packet ahead of that schedule. The check uses the timestamps in the packets and the times
// at the taps of the ranks' NICs.
//
// Timestamps of encrypted packets cannot be read. For them the check bounds the bytes that pass a
// tap in any interval. The bound is the rate times the interval, plus one packet, plus the 5 ms
// that a limiter makes up for, with the tolerance.
type PacingCheck struct {
	// Workload is the workload's name. Default: the only one of the file.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"only"`
	// Rate is the rate from each rank to each other rank. Default: the rate of each NIC's link, for
	// all packets that the NIC sends.
	Rate units.Rate `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Tolerance is the time by which a packet may be ahead of its schedule at the tap, because the
	// packets before it took longer to the tap. Default 1ms.
	Tolerance units.Duration `yaml:"tolerance,omitempty" json:"tolerance,omitzero"`
}

// Controls that need more than the ranks: a file of rates, and a process.
const (
	ControlOffline = "offline"
	ControlArbiter = "arbiter"
)

const (
	// defaultRDEngines and defaultRDPaths are the defaults of an endpoint.
	defaultRDEngines = 1
	defaultRDPaths   = 8
	// rdPaths is the number of source ports that the engines of an endpoint share.
	rdPaths = wire.PortsRDPath / (wire.PortsRD / wire.RDEngines)
	// maxRDWeight is the largest weight of a path.
	maxRDWeight = 1 << 16
)

// all returns the number of paths of the engines together, and of each engine.
func (r *RD) all() (together, each int) {
	each = cmp.Or(r.Paths, defaultRDPaths)
	return each * cmp.Or(r.Engines, defaultRDEngines), each
}

func (c *checker) rd(at, transport string, r *RD) {
	if r == nil {
		return
	}
	if transport != "rd" {
		c.ReportKey(at, "rd configures reliable datagrams, and the transport is "+transport,
			"want transport: rd, or remove it")
		return
	}
	if r.ReadableHeaders && !r.Encrypt {
		c.ReportKey(at+".readable-headers", "readable-headers without encryption",
			"want encrypt: true, or remove it")
	}
	if r.KeyLog && !r.Encrypt {
		c.ReportKey(at+".key-log", "key-log without encryption",
			"want encrypt: true, or remove it")
	}
	together, each := r.all()
	if together > rdPaths {
		c.Report(at+".paths", fmt.Sprintf("all engines together have %d paths", together),
			fmt.Sprintf("want at most %d", rdPaths))
	}
	if (r.Spray == "weighted") != (len(r.Weights) > 0) {
		c.ReportKey(at+".weights", "only one of weights and spray: weighted",
			"want both or neither")
	} else if len(r.Weights) > 0 && len(r.Weights) != each {
		c.Report(at+".weights", fmt.Sprintf("%d weights of %d paths", len(r.Weights), each),
			"want one weight for each path")
	}
	if r.Control == ControlArbiter && r.Engines > 1 {
		c.Report(at+".engines", fmt.Sprintf("control: %s with %d engines", ControlArbiter, r.Engines),
			"want engines: 1")
	}
	if r.Rates != "" && r.Control != ControlOffline {
		c.ReportKey(at+".rates", "rates without control: "+ControlOffline, "add it, or remove rates")
	}
	some := false
	for i, weight := range r.Weights {
		some = some || weight > 0
		if weight > maxRDWeight {
			c.Report(fmt.Sprintf("%s.weights[%d]", at, i), fmt.Sprintf("weight is %d", weight),
				fmt.Sprintf("want 0 to %d", maxRDWeight))
		}
	}
	if len(r.Weights) > 0 && !some {
		c.Report(at+".weights", "all weights are 0", "want at least one weight above 0")
	}
}
