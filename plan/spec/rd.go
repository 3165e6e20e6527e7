package spec

import (
	"cmp"
	"fmt"

	"railbed/internal/units"
	"railbed/internal/wire"
)

// RD is how the reliable datagrams of a step behave. What is left out has
// the transport's default.
type RD struct {
	// Engines work at once on each rank's NIC, each with ports and sequence
	// spaces of its own; messages go to them in turn. Default 1.
	Engines int `yaml:"engines,omitempty" json:"engines,omitempty" jsonschema:"minimum=1,maximum=16"`
	// Paths is how many source ports each engine sends from, at most 128 of all
	// engines of a rank together. Default 8.
	Paths int `yaml:"paths,omitempty" json:"paths,omitempty" jsonschema:"minimum=1,maximum=128"`
	// Spray is how packets are spread over the paths: oblivious (default), bitmap,
	// reps, mixed, weighted by weights, or pinned to one path.
	Spray string `yaml:"spray,omitempty" json:"spray,omitempty" jsonschema:"enum=oblivious,enum=bitmap,enum=reps,enum=mixed,enum=pinned,enum=weighted"`
	// Weights are the shares of the paths, one for each, with spray: weighted.
	Weights []int `yaml:"weights,omitempty" json:"weights,omitempty"`
	// Grain is how many packets in a row take one path: 1 sprays each packet;
	// more can leave in one system call. Default 4.
	Grain int `yaml:"grain,omitempty" json:"grain,omitempty" jsonschema:"minimum=1,maximum=64"`
	// Droppable is the share of each message that need not come: what is lost of it is
	// not sent again, and the receiver knows what is missing. Of an all-reduce that is of
	// messages with partial sums, and results come whole; of a training job of those sums
	// of gradients among data parallel ranks. Packets are left out whole: 2% of a message of 256
	// KiB, the longest, are one of 4 KiB, and of one of 128 KiB none. Default 0.
	Droppable units.Ratio `yaml:"droppable,omitempty" json:"droppable,omitzero"`
	// Encrypt encrypts and authenticates every packet, and what ranks and an arbiter
	// say to each other, by a secret that the workload draws for itself and that,
	// without key-log, is written nowhere.
	Encrypt bool `yaml:"encrypt,omitempty" json:"encrypt,omitempty"`
	// ReadableHeaders leaves the headers of encrypted packets readable,
	// authenticated: payload alone is hidden.
	ReadableHeaders bool `yaml:"readable-headers,omitempty" json:"readable-headers,omitempty"`
	// Control is what holds ranks back besides their NIC's rate: line (default)
	// is nothing, nscc reacts to delays and marks, learned does so by a trained
	// policy, offline keeps to rates that were computed before, arbiter sends in
	// timeslots that a process on rank 0's node gives away (Fastpass).
	Control string `yaml:"control,omitempty" json:"control,omitempty" jsonschema:"enum=line,enum=nscc,enum=offline,enum=arbiter,enum=learned"`
	// Rates is the file of rates for control: offline, as "railbed plan --rates"
	// prints them; its path counts from this file's place. Default: those of max-min
	// for the workload's pattern, by what each pair carries where that is known and even among
	// pairs that send messages, and of all-to-all with algorithm: pairwise those of
	// conflict-free phases, which then are the run's.
	Rates string `yaml:"rates,omitempty" json:"rates,omitempty"`
	// KeyLog writes what opens the encrypted packets of the recordings to NAME.keys
	// beside them, NAME being the workload's, and checks read those packets that
	// the capture's snaplen kept whole.
	KeyLog bool `yaml:"key-log,omitempty" json:"key-log,omitempty"`
}

// MayDrop says that something may be left out; nil has the defaults, by which nothing is.
func (r *RD) MayDrop() bool { return r != nil && !r.Droppable.IsZero() }

// PacingCheck holds that no packet of a workload over rd leaves more than that one
// packet ahead of the schedule of its rate, by the timestamps in the packets and by
// the times at the taps of the ranks' NICs. Of encrypted packets, whose timestamps
// cannot be read, what passes a tap in any time is at most the rate times it, one
// packet, and the 5 ms that a limiter makes up for, with the tolerance.
type PacingCheck struct {
	// Workload is the workload's name. Default: the only one of the file.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty"`
	// Rate is that from each rank to each other one. Default: that of each NIC's
	// link, for all that it sends.
	Rate units.Rate `yaml:"rate,omitempty" json:"rate,omitempty"`
	// Tolerance is how much sooner than its schedule says a packet may be at the
	// tap, since those before it took longer to there. Default 1ms.
	Tolerance units.Duration `yaml:"tolerance,omitempty" json:"tolerance,omitzero"`
}

// Controls that need something beside the ranks: rates, and a process.
const (
	ControlOffline = "offline"
	ControlArbiter = "arbiter"
)

const (
	// defaultRDEngines and defaultRDPaths are what an endpoint has that is told
	// nothing.
	defaultRDEngines = 1
	defaultRDPaths   = 8
	// rdPaths is how many source ports the engines of an endpoint share.
	rdPaths = wire.PortsRDPath / (wire.PortsRD / wire.RDEngines)
	// maxRDWeight is the largest weight of a path.
	maxRDWeight = 1 << 16
)

// all is how many paths the engines have together, and how many each.
func (r *RD) all() (together, each int) {
	each = cmp.Or(r.Paths, defaultRDPaths)
	return each * cmp.Or(r.Engines, defaultRDEngines), each
}

func (c *checker) rd(at, transport string, r *RD) {
	if r == nil {
		return
	}
	if transport != "rd" {
		c.reportKey(at, "rd is how reliable datagrams behave, and the transport is "+cmp.Or(transport, "tcp"),
			"want transport: rd, or remove it")
		return
	}
	if r.ReadableHeaders && !r.Encrypt {
		c.reportKey(at+".readable-headers", "headers are to stay readable, and nothing is encrypted",
			"want encrypt: true, or remove it")
	}
	if r.KeyLog && !r.Encrypt {
		c.reportKey(at+".key-log", "keys are to be written, and nothing is encrypted",
			"want encrypt: true, or remove it")
	}
	together, each := r.all()
	if together > rdPaths {
		c.report(at+".paths", fmt.Sprintf("%d paths of all engines", together),
			fmt.Sprintf("want at most %d of all together", rdPaths))
	}
	if (r.Spray == "weighted") != (len(r.Weights) > 0) {
		c.reportKey(at+".weights", "weights and spray: weighted are one without the other",
			"want both or neither")
	} else if len(r.Weights) > 0 && len(r.Weights) != each {
		c.report(at+".weights", fmt.Sprintf("%d weights of %d paths", len(r.Weights), each),
			"want one for each path")
	}
	if r.Control == ControlArbiter && r.Engines > 1 {
		c.report(at+".engines", fmt.Sprintf("control: %s with %d engines", ControlArbiter, r.Engines),
			"want engines: 1")
	}
	if r.Rates != "" && r.Control != ControlOffline {
		c.reportKey(at+".rates", "rates without control: "+ControlOffline, "want both, or remove them")
	}
	some := false
	for i, weight := range r.Weights {
		some = some || weight > 0
		if weight > maxRDWeight {
			c.report(fmt.Sprintf("%s.weights[%d]", at, i), fmt.Sprintf("weight is %d", weight),
				fmt.Sprintf("want 0 to %d", maxRDWeight))
		}
	}
	if len(r.Weights) > 0 && !some {
		c.report(at+".weights", "all weights are 0", "want one above 0")
	}
}
