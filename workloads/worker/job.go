package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"railbed/fabric/units"
	"railbed/testbed/plan"
	"railbed/testbed/plan/rates"
	"railbed/testbed/spec"
	"railbed/transports/infiniband"
	"railbed/transports/rd/privacy"
	"railbed/transports/wire"
	"railbed/workloads/collective"
)

// What a Job can ask for.
const (
	AllReduce     = spec.AllReduce
	AllGather     = spec.AllGather
	ReduceScatter = spec.ReduceScatter
	Broadcast     = spec.Broadcast
	Reduce        = spec.Reduce
	AllToAll      = spec.AllToAll
	Ring          = spec.Ring
	Direct        = "direct"
	Pairwise      = "pairwise"
	TCP           = "tcp"
	RD            = "rd"
	RoCE          = "roce"
)

// Job is a collective on every rank of a testbed.
type Job struct {
	Name  string
	Ranks []plan.Rank // in order, numbered from 0
	// Kind, Algorithm and Transport: all-to-all by direct (default) or pairwise, or what
	// package schedule has, ring being the default; tcp (default), rd or roce.
	Kind, Algorithm, Transport string
	Size                       units.Bytes // of the float32 buffer: a multiple of 4 bytes
	Iterations                 int         // timed; default 5
	Warmup                     int         // before them, checked but not timed
	InPlace                    bool        // do as many operations in place, after the others; all-to-all has none
	Skew                       int         // of all-to-all, and Seed: see collective.Skewed
	Seed                       uint64
	Family                     int // 4 (default) or 6
	// Timeout bounds the whole job. Default 2 minutes.
	Timeout time.Duration
	// BasePort is the first of the job's ports, BasePorts(len(Ranks)) of them;
	// jobs that run at once, or soon after each other, in one testbed must not
	// share any. Rank r listens on BasePort+r. Default 18600. Over rd the ranks of
	// an address have blocks of wire.PortRD instead.
	BasePort int
	// Ordinal tells jobs of one testbed apart that run at once over rd, which has
	// blocks for 16 ranks of an address.
	Ordinal int
	// RD is how rd behaves; nil is its defaults.
	RD *spec.RD
	// RoCE is how queue pairs behave over roce; nil is its defaults.
	RoCE *spec.RoCE
	// Secret is what all ranks share where RD says that they encrypt. Workers get it
	// over their channels and in no other way. Default: one of the job's own.
	Secret privacy.Material
	// Rates are those of rd with control: offline. RoundTrip is the longest of a
	// packet and its acknowledgement between two ranks where nobody else sends; 0 is
	// not known.
	Rates     *rates.File
	RoundTrip time.Duration
	// Sends are the links into which the ranks' NICs send, of all ranks or none.
	// rd keeps to their rates, and DCQCN starts there; TCP has its own ways.
	Sends []plan.Direction
	// Dilation is the testbed's; 0 is 1.
	Dilation uint64
}

const (
	defaultBasePort   = 18600
	defaultIterations = 5
	defaultTimeout    = 2 * time.Minute
	// sourcePorts is how many source ports a rank has to choose from: the
	// first is the one, the others are for when an earlier process left that
	// in TIME_WAIT.
	sourcePorts = 4
	// rdSlots is how many ranks of an address can be at once over rd.
	rdSlots = wire.PortsRD / wire.RDEngines
)

// Ports is how many ports a job over so many ranks occupies.
func Ports(ranks int) int { return ranks * (1 + sourcePorts) }

// Launcher starts worker processes: `railbed args...` in a node, with the
// channel on descriptor ChannelFD. It must be safe for concurrent use.
type Launcher interface {
	Launch(ctx context.Context, node string, args []string) (Process, error)
}

// Process is a started worker. Wait may be called at once, while the channel
// is in use, and Kill at any time, also after the process ended.
type Process interface {
	Channel() Channel
	// Wait returns when the process has ended; the error says how unless it
	// exited with 0.
	Wait() error
	Kill() error
}

// Progress is one operation that every rank has done.
type Progress struct {
	Done, Total int
	Operation   Operation
}

// Args is the command line that starts a worker.
func Args() []string { return []string{"worker", "collective"} }

// withDefaults fills what is not set and checks the rest.
func (j Job) withDefaults() (Job, error) {
	if j.Kind == AllToAll {
		setDefault(&j.Algorithm, Direct)
	}
	setDefault(&j.Algorithm, Ring)
	setDefault(&j.Transport, TCP)
	setDefault(&j.Iterations, defaultIterations)
	setDefault(&j.Family, 4)
	setDefault(&j.Timeout, defaultTimeout)
	setDefault(&j.BasePort, defaultBasePort)
	switch encrypts := j.RD != nil && j.RD.Encrypt; {
	case !encrypts:
		j.Secret = nil
	case j.Secret == nil:
		j.Secret = privacy.Generate()
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !known(j.Kind, j.Algorithm) || j.Transport != TCP && j.Transport != RD && j.Transport != RoCE {
		problem("%s by %s over %s: want %s, over %s, %s or %s", j.Kind, j.Algorithm, j.Transport, cmp.Or(strings.Join(spec.Algorithms(j.Kind), " or "), "another kind"), TCP, RD, RoCE)
	}
	if j.Kind == AllToAll && j.InPlace || (j.Kind != AllReduce || j.Algorithm != Ring) && j.RD != nil && !j.RD.Droppable.IsZero() {
		problem("%s by %s in place, or with bytes that may be left out: there is none", j.Kind, j.Algorithm)
	}
	if j.Skew < 0 || j.Skew > 0 && j.Kind != AllToAll {
		problem("a skew of %d of %s: want at least 0, and %s", j.Skew, j.Kind, AllToAll)
	}
	if len(j.Ranks) == 0 {
		problem("no ranks")
	}
	if j.Size%collective.ElementSize != 0 {
		problem("size %v: want a multiple of %d bytes, the size of a float32", j.Size, collective.ElementSize)
	}
	if j.Iterations < 0 || j.Warmup < 0 {
		problem("%d iterations after %d to warm up: want at least 0", j.Iterations, j.Warmup)
	}
	if j.Family != 4 && j.Family != 6 {
		problem("IP version %d: want 4 or 6", j.Family)
	}
	if last := j.BasePort + Ports(len(j.Ranks)) - 1; j.BasePort < 1 || last > 65535 {
		problem("ports %d to %d for %d ranks: want them within 1 to 65535", j.BasePort, last, len(j.Ranks))
	}
	shared := map[netip.Addr]int{}
	for i, r := range j.Ranks {
		if shared[j.addr(r)]++; j.Transport == RD && shared[j.addr(r)] == rdSlots+1 {
			problem("more than %d ranks at %v: rd has no more blocks of ports", rdSlots, j.addr(r))
		}
		if r.Rank != i {
			problem("rank %d stands at place %d", r.Rank, i)
		}
		if !j.addr(r).IsValid() {
			problem("rank %d on %s has no IPv%d address", r.Rank, r.Node, j.Family)
		}
	}
	if j.offline() {
		if j.Kind != AllToAll && j.Algorithm != Ring {
			problem("control: offline of %s, of which there are no rates", j.Algorithm)
		}
		if j.Rates == nil || j.Rates.Ranks != len(j.Ranks) {
			problem("control: offline without rates for its %d ranks", len(j.Ranks))
		} else if j.Algorithm == Direct && len(j.Rates.Phases) > 1 {
			problem("control: offline with rates in %d phases by %s, which has one: want %s", len(j.Rates.Phases), Direct, Pairwise)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return j, fmt.Errorf("run workload %s: %w", j.Name, err)
	}
	return j, nil
}

// known says that there is such an algorithm of a collective.
func known(kind, algorithm string) bool {
	return slices.Contains(spec.Algorithms(kind), algorithm)
}

// offline says that the job keeps to planned rates.
func (j Job) offline() bool {
	return j.Transport == RD && j.RD != nil && j.RD.Control == spec.ControlOffline
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (j Job) addr(r plan.Rank) netip.Addr {
	if j.Family == 6 {
		return r.Addr6
	}
	return r.Addr4
}

// slot is the block of rd's ports that rank i has on its address.
func (j Job) slot(i int) int {
	ranks, before := 0, 0
	for k, r := range j.Ranks {
		if j.addr(r) == j.addr(j.Ranks[i]) {
			ranks++
			if k < i {
				before++
			}
		}
	}
	return (j.Ordinal*ranks + before) % rdSlots
}

// config is what the worker of rank i is told.
func (j Job) config(i int) *workerConfig {
	r := j.Ranks[i]
	c := &workerConfig{
		Job: j.Name, Kind: j.Kind, Algorithm: j.Algorithm, Transport: j.Transport,
		Rank: i, Ranks: len(j.Ranks), NIC: r.NIC, Addr: j.addr(r), Size: j.Size,
		Port: uint16(j.BasePort + i), PerMode: j.Warmup + j.Iterations, InPlace: j.InPlace,
	}
	if j.Kind == AllToAll {
		c.Skew, c.Seed, c.Phases = j.Skew, j.Seed, j.phases(i)
	}
	if j.Transport == RD {
		c.Port, c.SourcePorts = uint16(wire.PortRD+wire.RDEngines*j.slot(i)), nil
		c.Dilation, c.RD, c.Secret, c.RoundTrip = j.Dilation, j.RD, j.Secret, j.RoundTrip
		if j.arbitrated() {
			c.Arbiter = j.arbiterAt()
			c.SlotTime, _ = j.slotTime() // arbitrate has said what is wrong
		}
		if j.Rates != nil {
			c.Rates = j.Rates.Pairs(i)
		}
		if i < len(j.Sends) {
			c.Rate, c.Overhead = j.Sends[i].Rate, int(j.Sends[i].Overhead)
		}
		return c
	}
	if j.Transport == RoCE {
		c.Port, c.Dilation, c.RoCE = infiniband.Port, j.Dilation, j.RoCE
		if i < len(j.Sends) {
			c.Rate, c.Overhead = j.Sends[i].Rate, int(j.Sends[i].Overhead)
		}
		return c
	}
	for k := range sourcePorts {
		c.SourcePorts = append(c.SourcePorts, uint16(j.BasePort+len(j.Ranks)+i*sourcePorts+k))
	}
	return c
}
