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

	"railbed/internal/element"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/moe"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
	"railbed/workloads/training"
)

// What a Job can ask for.
const (
	AllReduce     = spec.AllReduce
	AllGather     = spec.AllGather
	ReduceScatter = spec.ReduceScatter
	Broadcast     = spec.Broadcast
	Gather        = spec.Gather
	Scatter       = spec.Scatter
	Reduce        = spec.Reduce
	AllToAll      = spec.AllToAll
	Barrier       = spec.Barrier
	Ring          = spec.Ring
	Hierarchical  = spec.Hierarchical
	MSCCL         = spec.MSCCL
	Auto          = spec.Auto
	Direct        = spec.Direct
	Pairwise      = spec.Pairwise
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
	Root                       int         // from which a broadcast comes and to which a reduce goes
	Size                       units.Bytes // of the whole buffer: a multiple of an element's
	// Type is that of the elements, element.Float32 by default, and Op what is made of
	// those of several ranks, element.Sum by default, where the kind makes anything of them.
	Type       element.Type
	Op         element.Op
	Iterations int    // timed; default 5
	Warmup     int    // before them, not timed
	InPlace    bool   // do as many operations in place, after the others; all-to-all has none
	Sweep      *Sweep // nil: operations of Size, each started when all are ready, and checked
	Skew       int    // of all-to-all, and Seed: see collective.Skewed
	Seed       uint64
	// SGD makes the data the gradients of a training, of which each operation is a step.
	// Kind and Size follow from it, and Seed gives its samples.
	SGD *spec.SGD
	// Channels are the places of an all-reduce in several channels, each for a part of the
	// buffer: see func Channels. ChannelSends are their links, as Sends. Default: none, and
	// all goes by the ranks' own places.
	Channels     []plan.Rank
	ChannelSends []plan.Direction
	// Aggregator is that of algorithm in-network, over in-switch.
	Aggregator *Aggregator
	// MoE is the mixture of a job of that kind. Type and Size follow from it.
	MoE    *moe.Config
	Family int // 4 (default) or 6
	// Timeout bounds the whole job. Default 2 minutes.
	Timeout time.Duration
	// Silence is how long a worker may not answer before it counts as hung, and the job as
	// failed: its process is stopped, or gets no processor. It has three times as long for its
	// first word. Default 20 seconds.
	Silence time.Duration
	// BasePort is the first of the job's ports, BasePorts(len(Ranks)) of them;
	// jobs that run at once, or soon after each other, in one testbed must not
	// share any. Rank r listens on BasePort+r. Default 18600. Over rd the ranks of
	// an address have blocks of wire.PortRD instead.
	BasePort int
	// Ordinal tells jobs of one testbed apart that run at once over rd, which has
	// blocks for 16 ranks of an address, and all that run over roce in a recording, whose
	// queue pairs have numbers of their own then: 255 of up to 16 ranks of an address. 0 has
	// any numbers.
	Ordinal int
	// Training is what a job of that kind does; its operations have sizes of their own.
	Training *training.Program
	// Messages is what a job of that kind sends, in the testbed's time.
	Messages *flows.Schedule
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
	Rates     *allocation.File
	RoundTrip time.Duration
	// RatesBack are those of what comes back from experts. Default: Rates.
	RatesBack *allocation.File
	// Schedule is that of algorithm msccl.
	Schedule *schedule.Schedule
	// Sends are the links into which the ranks' NICs send, of all ranks or none.
	// rd keeps to their rates, and DCQCN starts there; TCP has its own ways.
	Sends []plan.Direction
	// Dilation is the testbed's; 0 is 1.
	Dilation uint64

	sgdSecret privacy.Material // what ranks encrypt gradients with
	endGrace  time.Duration
}

const (
	defaultBasePort   = 18600
	defaultIterations = 5
	defaultTimeout    = 2 * time.Minute
	defaultSilence    = 20 * time.Second
	// sourcePorts is how many source ports a rank has to choose from: the
	// first is the one, the others are for when an earlier process left that
	// in TIME_WAIT.
	sourcePorts = 4
	// rdSlots is how many ranks of an address can be at once over rd.
	rdSlots = wire.PortsRD / wire.RDEngines
)

// Ports is how many ports a job over so many ranks occupies.
func Ports(ranks int) int { return ranks * (1 + sourcePorts) }

// ErrJob is that a job asks for something that there is not.
var ErrJob = errors.New("a job that cannot be")

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

// Progress is one round that every rank has done.
type Progress struct {
	Done, Total int
	Operation   Operation
	// Row is that of the round's size, when all rounds of it are done.
	Row *perf.Row
	// Ranks are those of the job; what they counted comes with the Result.
	Ranks []RankResult
}

// Args is the command line that starts a worker.
func Args() []string { return []string{"worker", "collective"} }

// withDefaults fills what is not set and checks the rest.
func (j Job) withDefaults() (Job, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	j.learn(problem)
	j.mix(problem)
	if all := spec.Algorithms(j.Kind); len(all) > 0 {
		setDefault(&j.Algorithm, all[0])
	}
	setDefault(&j.Algorithm, Ring)
	if j.Algorithm == InNetwork {
		setDefault(&j.Transport, InSwitch)
	}
	setDefault(&j.Transport, TCP)
	setDefault(&j.Type, element.Float32)
	setDefault(&j.Op, element.Sum)
	if !schedule.Kind(j.Kind).Combines() {
		j.Op = element.None
	}
	setDefault(&j.Iterations, defaultIterations)
	setDefault(&j.Family, 4)
	setDefault(&j.Timeout, defaultTimeout)
	setDefault(&j.Silence, defaultSilence)
	setDefault(&j.BasePort, defaultBasePort)
	setDefault(&j.endGrace, endGrace)
	switch encrypts := j.RD != nil && j.RD.Encrypt; {
	case !encrypts:
		j.Secret = nil
	case j.Secret == nil:
		j.Secret = privacy.Generate()
	}
	j.checkAlgorithm(problem)
	j.checkInNetwork(problem)
	j.checkChannels(problem)
	if j.Skew < 0 || j.Skew > 0 && j.Kind != AllToAll {
		problem("a skew of %d of %s: want at least 0, and %s", j.Skew, j.Kind, AllToAll)
	}
	if len(j.Ranks) == 0 {
		problem("no ranks")
	}
	j.checkOperations(problem)
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
	j.checkRates(problem)
	if err := errors.Join(problems...); err != nil {
		return j, fmt.Errorf("run workload %s: %w: %w", j.Name, ErrJob, err)
	}
	return j, nil
}

// Check says why there can be no such job, as Run does.
func (j Job) Check() error {
	_, err := j.withDefaults()
	return err
}

// checkRates looks at the rates of a job with control: offline.
func (j Job) checkRates(problem func(format string, args ...any)) {
	if !j.offline() {
		return
	}
	if j.Training == nil && j.Messages == nil && !spec.HasRates(j.Kind, j.Algorithm) {
		problem("control: offline of %s, of which there are no rates", j.Algorithm)
	}
	if j.Rates == nil || j.Rates.Ranks != len(j.Ranks) {
		problem("control: offline without rates for its %d ranks", len(j.Ranks))
	} else if j.Algorithm == Direct && len(j.Rates.Phases) > 1 {
		problem("control: offline with rates in %d phases by %s, which has one: want %s", len(j.Rates.Phases),
			Direct, Pairwise)
	}
}

// checkAlgorithm looks at what is asked of which algorithm.
func (j Job) checkAlgorithm(problem func(format string, args ...any)) {
	if !known(j.Kind, j.Algorithm) && j.Kind != Training && j.Kind != Messages ||
		!slices.Contains([]string{TCP, RD, RoCE, InSwitch}, j.Transport) {
		problem("%s by %s over %s: want %s, over %s, %s or %s", j.Kind, j.Algorithm, j.Transport,
			cmp.Or(strings.Join(spec.Algorithms(j.Kind), " or "), "another kind"), TCP, RD, RoCE)
	}
	switch j.Algorithm {
	case Hierarchical:
		if _, err := schedule.Hierarchical(schedule.Kind(j.Kind), Rails(j.Ranks)); err != nil {
			problem("%w", err)
		}
	case MSCCL:
		if err := j.CheckSchedule(); err != nil {
			problem("%w", err)
		} else if j.InPlace && j.Schedule.OutOfPlace {
			problem("%s in place, which is for out of place alone", j.Schedule.Algorithm)
		}
	}
	if j.Kind == AllToAll && j.Algorithm != MSCCL && j.InPlace || !j.mayLose() && j.RD.MayDrop() {
		problem("%s by %s in place, or with bytes that may be left out: there is none", j.Kind, j.Algorithm)
	}
}

// mayLose says that the job has messages of which parts may be left out.
func (j Job) mayLose() bool {
	return j.Kind == AllReduce && j.Algorithm == Ring || j.Kind == Training || j.Kind == Messages
}

func (j Job) checkOperations(problem func(format string, args ...any)) {
	j.checkElements(problem)
	j.checkRounds(problem)
	j.checkTraining(problem)
	j.checkMessages(problem)
}

// checkElements looks at types, operations and the root.
func (j Job) checkElements(problem func(format string, args ...any)) {
	if j.Root < 0 || j.Root >= max(len(j.Ranks), 1) {
		problem("root %d of %d ranks", j.Root, len(j.Ranks))
	}
	if j.Type.Size() == 0 || j.Op != element.None && !slices.Contains(element.Ops(), j.Op) {
		problem("%s of type %s: want %v of %v", j.Op, j.Type, element.Ops(), element.Types())
		return
	}
	if err := (collective.PatternConfig{Ranks: max(len(j.Ranks), 1), Type: j.Type,
		Op: j.Op}).Check(); err != nil {
		problem("%w", err)
	}
}

// checkRounds looks at sizes and numbers of operations.
func (j Job) checkRounds(problem func(format string, args ...any)) {
	for _, size := range j.sizes() {
		if j.Kind == Barrier && size > 0 {
			problem("a barrier of %v: it has no data", size)
		}
		if each := units.Bytes(max(j.Type.Size(), 1)); size%each != 0 {
			problem("size %v: want a multiple of %d bytes, the size of an element of type %s", size, each,
				j.Type)
		}
	}
	if j.Iterations < 0 || j.Warmup < 0 {
		problem("%d iterations after %d to warm up: want at least 0", j.Iterations, j.Warmup)
	}
	s := j.Sweep
	if s == nil {
		return
	}
	if len(s.Sizes) == 0 || s.Checks < 0 || s.Average < Slowest || s.Average > FirstRank {
		problem("a sweep of %d sizes with %d checks: want some, and at least 0 checks", len(s.Sizes),
			s.Checks)
	}
	if j.RD.MayDrop() {
		problem("a sweep with bytes that may be left out: there is none")
	}
}

// known says that there is such an algorithm of a collective.
func known(kind, algorithm string) bool {
	return slices.Contains(spec.Algorithms(kind), algorithm)
}

// ratesOf are those of a rank, none where there is no file.
func ratesOf(f *allocation.File, rank int) map[int]units.Rate {
	if f == nil {
		return nil
	}
	return f.Pairs(rank)
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

// SendsOf are the links into which the NICs of ranks send.
func SendsOf(p *plan.Plan, ranks []plan.Rank) []plan.Direction {
	var sends []plan.Direction
	for _, r := range ranks {
		if d := p.Sends(r.Node, r.NIC); d != nil {
			sends = append(sends, *d)
		}
	}
	return sends
}

// slot is the block of rd's ports that rank i has on its address.
func (j Job) slot(i int) int {
	ranks, before := j.sharing(i)
	return (j.Ordinal*ranks + before) % rdSlots
}

// block is that of roce's queue pairs, which no other job has: there are 4,095. 0 is any.
func (j Job) block(i int) uint32 {
	if j.Ordinal == 0 {
		return 0
	}
	ranks, before := j.sharing(i)
	return 1 + uint32(j.Ordinal*max(ranks, rdSlots)+before)
}

// sharing is how many ranks the address of rank i has, and how many of these are before it.
func (j Job) sharing(i int) (ranks, before int) {
	for k, r := range j.Ranks {
		if j.addr(r) == j.addr(j.Ranks[i]) {
			ranks++
			if k < i {
				before++
			}
		}
	}
	return ranks, before
}

// config is what the worker of rank i is told.
func (j Job) config(i int) *workerConfig {
	r := j.Ranks[i]
	c := &workerConfig{
		Job:       j.Name,
		Kind:      j.Kind,
		Algorithm: j.Algorithm,
		Transport: j.Transport,
		Root:      j.Root,
		Type:      j.Type,
		Op:        j.Op,
		Rank:      i, Ranks: len(j.Ranks), NIC: r.NIC, Addr: j.addr(r), Sizes: j.sizes(),
		Port: uint16(j.BasePort + i), Warmup: j.Warmup, Iterations: j.Iterations, InPlace: j.InPlace,
	}
	if j.Sweep != nil {
		c.Together, c.Checks, c.BusyPoll = true, j.Sweep.Checks, j.Sweep.BusyPoll
	}
	if j.SGD != nil {
		c.SGD, c.SGDSecret, c.Seed = j.SGD, j.sgdSecret, j.Seed
	}
	c.Unbound = j.unbound(i)
	switch j.Algorithm {
	case Hierarchical:
		c.Rails = Rails(j.Ranks)
	case MSCCL:
		c.Schedule = j.Schedule
	case Auto:
		c.Rails = Rails(j.Ranks)
		for _, size := range c.Sizes {
			c.Chosen = append(c.Chosen, AlgorithmFor(j.Kind, j.Algorithm, j.Ranks, j.channels(), size))
		}
	}
	if j.Kind == AllToAll && j.Algorithm != MSCCL {
		c.Skew, c.Seed, c.Phases = j.Skew, j.Seed, j.phases(i)
	}
	for k := range j.channels() {
		c.Channels = append(c.Channels, *j.perChannel().config(i*j.channels() + k))
	}
	if j.Aggregator != nil {
		c.Aggregator, c.Dilation = j.aggregator(i), j.Dilation
	}
	if j.MoE != nil {
		c.MoE, c.Phases = j.MoE, j.phases(i)
	}
	if j.Training != nil {
		c.Training, c.Dilation = j.Training.Of(i), j.Dilation
	}
	if j.Messages != nil {
		c.Messages, c.Dilation = j.Messages, j.Dilation
	}
	j.configTransport(c, i)
	return c
}

// configTransport says how a rank's transport behaves.
func (j Job) configTransport(c *workerConfig, i int) {
	switch j.Transport {
	case RD:
		c.Port, c.SourcePorts = uint16(wire.PortRD+wire.RDEngines*j.slot(i)), nil
		c.Dilation, c.RD, c.Secret, c.RoundTrip = j.Dilation, j.RD, j.Secret, j.RoundTrip
		if j.arbitrated() {
			c.Arbiter = j.arbiterAt()
			c.SlotTime, _ = j.slotTime() // arbitrate has said what is wrong
		}
		c.Rates, c.RatesBack = ratesOf(j.Rates, i), ratesOf(j.RatesBack, i)
	case RoCE:
		c.Port, c.Dilation, c.RoCE, c.Block = infiniband.Port, j.Dilation, j.RoCE, j.block(i)
	default:
		for k := range sourcePorts {
			c.SourcePorts = append(c.SourcePorts, uint16(j.BasePort+len(j.Ranks)+i*sourcePorts+k))
		}
		return
	}
	if i < len(j.Sends) {
		c.Rate, c.Overhead = j.Sends[i].Rate, int(j.Sends[i].Overhead)
	}
}
