package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"railbed/internal/element"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// The transports of a Job.
const (
	TCP  = rank.TCP
	RD   = rank.RD
	RoCE = rank.RoCE
	QUIC = rank.QUIC
)

// Job is a workload on ranks of a testbed.
type Job struct {
	Name  string
	Ranks []plan.Rank // in order, numbered from 0
	// Numbers are the testbed's numbers of the ranks, by which faults select them. Default: the job's own.
	Numbers []int
	// Kind and Algorithm choose the collective. An all-to-all is direct (default) or pairwise. The
	// other collectives use the algorithms of package schedule, by default Ring. Transport is tcp
	// (default), rd, roce or quic.
	Kind, Algorithm, Transport string
	// Root is the source of a broadcast and the destination of a reduce.
	Root int
	// Size is the size of the whole buffer in bytes: a multiple of the size of an element.
	Size units.Bytes
	// Type is the type of the elements, by default element.Float32. Op combines the elements of
	// several ranks, by default element.Sum, if the kind combines elements.
	Type       element.Type
	Op         element.Op
	Iterations int // timed; default 5
	Warmup     int // untimed operations before the timed operations
	// InPlace repeats the operations in place, after the others. An all-to-all has no in-place
	// operation.
	InPlace bool
	// Sweep measures several sizes. If it is nil, the operations have size Size, each starts when
	// all ranks are ready, and each is checked.
	Sweep *Sweep
	// Skew and Seed are for an all-to-all: see collective.Skewed.
	Skew int
	Seed uint64
	// Work is the kind of workload. Default: Collective. The kind of collective, the type and the
	// size follow from the other kinds.
	Work Work
	// Channels are the places of an all-reduce in several channels, each for a part of the buffer:
	// see func Channels. ChannelSends are their links, like Sends. By default there are no
	// channels, and all traffic uses the ranks' own places.
	Channels     []plan.Rank
	ChannelSends []plan.Direction
	// Aggregator is set for algorithm in-network, over in-switch.
	Aggregator *Aggregator
	Family     int // IP version: 4 (default) or 6
	// DSCP is the DSCP of the packets of tcp, rd and roce. Default 0: the transport's.
	DSCP int
	// Timeout limits the duration of the whole job. Default 2 minutes.
	Timeout time.Duration
	// Silence is the time for which a worker may leave questions unanswered before the job fails.
	// Such a worker hangs: its process is stopped, or gets no processor. Before its first message a
	// worker has three times as long. Default 20 seconds.
	Silence time.Duration
	// BasePort is the first of the job's Ports(len(Ranks)) ports. Jobs in one testbed that run at
	// once, or soon after each other, must not share ports. Rank r listens on BasePort+r. Default
	// 18600. Over rd the ranks of an address use blocks of ports from wire.PortRD instead.
	BasePort int
	// Ordinal distinguishes jobs of one testbed. Over rd, jobs that run at once need different
	// ordinals, because rd has port blocks for 16 ranks per address. Over roce, all jobs of a
	// recording need different ordinals, so that each job has queue pair numbers of its own. There
	// are numbers for 255 jobs of up to 16 ranks per address. With 0 a roce job has any queue pair
	// numbers.
	Ordinal int
	// RD configures rd; nil means its defaults.
	RD *spec.RD
	// RoCE configures the queue pairs of roce; nil means the defaults.
	RoCE *spec.RoCE
	// Secret is the secret that all ranks share if RD enables encryption. Workers get it over their
	// channels and in no other way. Default: a new secret for the job.
	Secret privacy.Material
	// Rates are the rates of rd with control: offline. RoundTrip is the longest time for a packet
	// and its acknowledgement between two ranks when no other rank sends. 0 means unknown.
	Rates     *allocation.File
	RoundTrip time.Duration
	// Schedule is the schedule of algorithm msccl.
	Schedule *schedule.Schedule
	// Sends are the links into which the ranks' NICs send, for all ranks or for none. rd does not
	// exceed their rates, and DCQCN starts at them. TCP uses its own congestion control.
	Sends []plan.Direction
	// Dilation is the testbed's time dilation; 0 means 1.
	Dilation uint64

	endGrace time.Duration
}

const (
	defaultBasePort   = 18600
	defaultIterations = 5
	defaultTimeout    = 2 * time.Minute
	defaultSilence    = 20 * time.Second
	// sourcePorts is the number of source ports per rank. The rank uses the first. The others are
	// for when an earlier process left the first in TIME_WAIT.
	sourcePorts = 4
	// rdSlots is how many ranks of an address can run at once over rd.
	rdSlots = wire.PortsRD / wire.RDEngines
)

// Ports returns the number of ports that a job of the given number of ranks occupies.
func Ports(ranks int) int { return ranks * (1 + sourcePorts) }

// ErrJob is the error of a Job that Railbed cannot run.
var ErrJob = errors.New("invalid job")

// Launcher starts worker processes: `railbed args...` in a node, with the channel on the descriptor of
// rank.Inherited. It must be safe for concurrent use.
type Launcher interface {
	Launch(ctx context.Context, node string, args []string) (Process, error)
}

// Process is a started worker. Wait may be called at once, while the channel is in use. Kill may be
// called at any time, also after the process has exited.
type Process interface {
	// Channel returns the coordinator's end of the channel. Its Close must end a Read that is waiting.
	Channel() io.ReadWriteCloser
	// Wait returns when the process has exited. The error is the exit status, or nil if the process
	// exited with 0.
	Wait() error
	Kill() error
}

// Progress reports one round that every rank has done.
type Progress struct {
	Done, Total int
	Operation   Operation
	// Row is the row of the round's size, if all rounds of this size are done, else nil.
	Row *perf.Row
	// Ranks are the job's ranks. Counters that the workers report at their end come only with the
	// Result.
	Ranks []RankResult
}

// Args returns the command line that starts a worker.
func Args() []string { return []string{"worker", "collective"} }

// withDefaults sets the defaults and checks all other fields.
func (j Job) withDefaults() (Job, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if j.Work == nil {
		j.Work = Collective{}
	}
	j.Work.complete(&j, problem)
	if all := spec.Algorithms(j.Kind); len(all) > 0 {
		setDefault(&j.Algorithm, all[0])
	}
	setDefault(&j.Algorithm, schedule.Ring)
	if j.Algorithm == schedule.InNetwork {
		setDefault(&j.Transport, spec.InSwitch)
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
	j.Work.check(&j, problem)
	if !slices.Contains([]string{TCP, RD, RoCE, QUIC, spec.InSwitch}, j.Transport) {
		problem("unknown transport %s: want %s, %s, %s or %s", j.Transport, TCP, RD, RoCE, QUIC)
	}
	j.checkInNetwork(problem)
	j.checkChannels(problem)
	if j.Skew < 0 || j.Skew > 0 && j.Kind != spec.AllToAll {
		problem("a skew of %d for %s: want at least 0, and only for %s", j.Skew, j.Kind, spec.AllToAll)
	}
	if len(j.Ranks) == 0 {
		problem("no ranks: want at least 1")
	}
	j.checkElements(problem)
	j.checkRounds(problem)
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
			problem("Ranks[%d] has rank %d, want %[1]d", i, r.Rank)
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

// Check returns the error that Run would return for an invalid job.
func (j Job) Check() error {
	_, err := j.withDefaults()
	return err
}

// checkRates checks the rates of a job with control: offline.
func (j Job) checkRates(problem reporter) {
	if !j.offline() {
		return
	}
	if j.Rates == nil || j.Rates.Ranks != len(j.Ranks) {
		problem("control: offline needs rates for %d ranks", len(j.Ranks))
	} else if j.Algorithm == schedule.Direct && len(j.Rates.Phases) > 1 {
		problem("control: offline with rates in %d phases: algorithm %s has one phase, want %s",
			len(j.Rates.Phases), schedule.Direct, schedule.Pairwise)
	}
}

// checkElements checks types, operations and the root.
func (j Job) checkElements(problem reporter) {
	if j.Root < 0 || j.Root >= max(len(j.Ranks), 1) {
		problem("root is rank %d of %d ranks, want 0 to %d", j.Root, len(j.Ranks), max(len(j.Ranks), 1)-1)
	}
	if j.Type.Size() == 0 || j.Op != element.None && !slices.Contains(element.Ops(), j.Op) {
		problem("%s of type %s: want an operation of %v and a type of %v", j.Op, j.Type, element.Ops(),
			element.Types())
		return
	}
	if err := (collective.PatternConfig{Ranks: max(len(j.Ranks), 1), Type: j.Type,
		Op: j.Op}).Check(); err != nil {
		problem("%w", err)
	}
}

// checkRounds checks sizes and numbers of operations.
func (j Job) checkRounds(problem reporter) {
	for _, size := range j.sizes() {
		if j.Kind == spec.Barrier && size > 0 {
			problem("a barrier of size %v, want 0: it has no data", size)
		}
		if each := units.Bytes(max(j.Type.Size(), 1)); size%each != 0 {
			problem("size %v: want a multiple of %d bytes, the size of an element of type %s", size, each,
				j.Type)
		}
	}
	if j.Iterations < 0 || j.Warmup < 0 {
		problem("%d iterations and %d warm-ups: want at least 0", j.Iterations, j.Warmup)
	}
	s := j.Sweep
	if s == nil {
		return
	}
	if len(s.Sizes) == 0 || s.Checks < 0 || s.Average < Slowest || s.Average > FirstRank {
		problem("a sweep of %d sizes with %d checks: want at least 1 size, 0 or more checks and a "+
			"known average", len(s.Sizes), s.Checks)
	}
	if j.RD.MayDrop() {
		problem("a sweep with droppable bytes: want no droppable bytes")
	}
}

// ratesOf returns the rates of a rank, or nil if there is no file.
func ratesOf(f *allocation.File, rank int) map[int]units.Rate {
	if f == nil {
		return nil
	}
	return f.Pairs(rank)
}

// offline reports whether the job uses planned rates.
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

// SendsOf returns the links into which the NICs of ranks send.
func SendsOf(p *plan.Plan, ranks []plan.Rank) []plan.Direction {
	var sends []plan.Direction
	for _, r := range ranks {
		if d := p.Sends(r.Node, r.NIC); d != nil {
			sends = append(sends, *d)
		}
	}
	return sends
}

// slot returns the index of the block of rd ports that rank i uses on its address.
func (j Job) slot(i int) int {
	ranks, before := j.sharing(i)
	return (j.Ordinal*ranks + before) % rdSlots
}

// block returns the number of rank i's block of roce queue pairs, which no other job uses. There
// are 4,095 blocks. 0 means any block.
func (j Job) block(i int) uint32 {
	if j.Ordinal == 0 {
		return 0
	}
	ranks, before := j.sharing(i)
	return 1 + uint32(j.Ordinal*max(ranks, rdSlots)+before)
}

// sharing returns how many ranks the address of rank i has, and how many of these come before rank
// i.
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

// config returns the configuration of rank i.
func (j Job) config(i int) *rank.Config {
	r := j.Ranks[i]
	c := &rank.Config{
		Work:      rank.Assignment{Work: j.Work.of(&j, i)},
		Transport: j.Transport,
		PlaceConfig: rank.PlaceConfig{Rank: i, Ranks: len(j.Ranks), Node: r.Node, NIC: r.NIC,
			Unbound: j.unbound(i), Bypass: r.Bypass && slices.Contains(spec.Bypassing, j.Transport),
			Addr: j.addr(r), Port: uint16(j.BasePort + i), Dilation: j.Dilation},
		RoundsConfig: rank.RoundsConfig{Sizes: j.sizes(), Warmup: j.Warmup, Iterations: j.Iterations,
			InPlace: j.InPlace},
	}
	if j.Sweep != nil {
		c.Together, c.Checks, c.BusyPoll = true, j.Sweep.Checks, j.Sweep.BusyPoll
	}
	for k := range j.channels() {
		c.Channels = append(c.Channels, *j.perChannel().config(i*j.channels() + k))
	}
	j.configTransport(c, i)
	return c
}

// configTransport sets the part of a rank's configuration for its transport.
func (j Job) configTransport(c *rank.Config, i int) {
	c.DSCP = j.DSCP
	switch j.Transport {
	case RD:
		c.Port, c.SourcePorts = uint16(wire.PortRD+wire.RDEngines*j.slot(i)), nil
		c.RD, c.Secret, c.RoundTrip = j.RD, j.Secret, j.RoundTrip
		if j.arbitrated() {
			c.Arbiter = j.arbiterAt()
			c.SlotTime, _ = j.slotTime() // arbitrate has already reported an error
		}
		c.Rates = ratesOf(j.Rates, i)
	case RoCE:
		c.Port, c.RoCE, c.Block = infiniband.Port, j.RoCE, j.block(i)
	case QUIC: // the rank sends from its own port
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
