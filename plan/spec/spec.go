// Package spec is the file that a user writes: its types, strict YAML decoding
// with positions, defaults and the JSON Schema made from the types.
//
// A spec is inert data. Nothing here looks at the host, and two decodings of
// the same bytes are equal.
package spec

import (
	"railbed/internal/units"
)

// Testbed is one file: a cluster and, where it is a scenario, what to do with
// it and what must hold afterwards.
type Testbed struct {
	// Name is the testbed's name on the host: 1 to 24 of a-z, 0-9 and "-".
	Name string `yaml:"name" json:"name"`
	// Description is one line for people.
	Description string `yaml:"description,omitempty" json:"description,omitempty"`
	// Seed feeds every random draw and hash seed of the testbed. Default 1.
	Seed uint64 `yaml:"seed,omitempty" json:"seed,omitempty" jsonschema:"minimum=1"`
	// Dilation slows links and stretches delays by this factor, and all times of
	// the steps with them, so that a small machine carries a fast fabric. The file
	// and the report state virtual values. Every switch must be soft. Default 1.
	Dilation uint64 `yaml:"dilation,omitempty" json:"dilation,omitempty" jsonschema:"minimum=1,maximum=1000"`
	// AcceptUndilated names what may keep real time in a dilated run: tcp, the
	// kernel's timers (all but the least retransmission timeout, which is
	// stretched), and programs, what exec and stack run. A dilated run with what is not
	// named here is at best degraded.
	AcceptUndilated []string `yaml:"accept-undilated,omitempty" json:"accept-undilated,omitempty"`
	// Addressing overrides the address pools.
	Addressing Addressing `yaml:"addressing,omitempty" json:"addressing,omitempty"`
	// Fabric is everything between the nodes.
	Fabric Fabric `yaml:"fabric" json:"fabric"`
	// Nodes maps a node's name, a glob over names, or "default" to settings.
	// A name beats a glob, a later glob beats an earlier one, and every glob
	// beats "default".
	Nodes Ordered[Node] `yaml:"nodes,omitempty" json:"nodes,omitempty"`
	// Requires names host features without which the file is UNSUPPORTED.
	Requires []string `yaml:"requires,omitempty" json:"requires,omitempty"`
	// Steps run in order; a step with At starts that long after the first.
	Steps []Step `yaml:"steps,omitempty" json:"steps,omitempty"`
	// Checks are judged after the last step.
	Checks []Check `yaml:"checks,omitempty" json:"checks,omitempty"`

	// Source remembers where every value stood, for errors found later.
	Source *Source `yaml:"-" json:"-"`
}

// What keeps real time in a dilated run, as AcceptUndilated names it.
const (
	UndilatedTCP      = "tcp"
	UndilatedPrograms = "programs"
)

// Undilated are all of them.
var Undilated = []string{UndilatedTCP, UndilatedPrograms}

// Undilated is what of the file's steps keeps real time, in the order of the
// variable; nil without dilation.
func (t *Testbed) Undilated() []string {
	if t.Dilation <= 1 {
		return nil
	}
	uses := map[string]bool{}
	for _, step := range t.Steps {
		uses[UndilatedTCP] = uses[UndilatedTCP] || step.Workload != nil && step.Workload.Transport == "tcp" ||
			step.Training != nil && step.Training.Transport == "tcp" ||
			step.Messages != nil && step.Messages.Transport == "tcp"
		uses[UndilatedPrograms] = uses[UndilatedPrograms] || step.Exec != nil || step.Stack != nil
	}
	var found []string
	for _, what := range Undilated {
		if uses[what] {
			found = append(found, what)
		}
	}
	return found
}

// Topology names of Fabric.Topology.
const (
	Explicit      = "explicit"
	SingleSwitch  = "single-switch"
	LeafSpine     = "leaf-spine"
	FatTree       = "fat-tree"
	RailOptimized = "rail-optimized"
	HPN           = "hpn"
	Torus         = "torus"
	Dragonfly     = "dragonfly"
)

// Fabric is the switches and links, generated or written out.
type Fabric struct {
	// Topology is a generator's name, or "explicit".
	Topology string `yaml:"topology" json:"topology" jsonschema:"enum=explicit,enum=single-switch,enum=leaf-spine,enum=fat-tree,enum=rail-optimized,enum=hpn,enum=torus,enum=dragonfly"`
	// Params are the generator's parameters, whole numbers: single-switch
	// {hosts}; leaf-spine {leaves, spines, hosts-per-leaf, striped}; fat-tree {k};
	// rail-optimized {servers, rails, spines}; hpn {segments, servers, rails,
	// aggs}; torus {x, y, z, hosts-per-switch}; dragonfly {groups, switches,
	// hosts-per-switch, global-links}.
	Params Ordered[int] `yaml:"params,omitempty" json:"params,omitempty"`
	// Switch is the default of every switch.
	Switch Switch `yaml:"switch,omitempty" json:"switch,omitempty"`
	// Switches are explicit switches, or overrides of generated ones by name
	// or glob.
	Switches Ordered[Switch] `yaml:"switches,omitempty" json:"switches,omitempty"`
	// Hosts are the names of explicit nodes; only with topology explicit.
	Hosts []string `yaml:"hosts,omitempty" json:"hosts,omitempty"`
	// Connect lists explicit links as "a:eth0 -- b:p1" or "a -- b", where
	// ports are numbered in order; only with topology explicit.
	Connect []string `yaml:"connect,omitempty" json:"connect,omitempty"`
	// Links maps "default", a class ("host", "fabric") or a link's name or
	// glob ("leaf1--spine2") to settings; later and more exact ones win.
	Links Ordered[Link] `yaml:"links,omitempty" json:"links,omitempty"`
	// Routing is where the routes of routers come from. Default: the plan.
	Routing *Routing `yaml:"routing,omitempty" json:"routing,omitempty"`
	// Memory is for all packets in soft switches, links and emulated NICs
	// together. Default 256MiB.
	Memory units.Bytes `yaml:"memory,omitempty" json:"memory,omitempty"`
}

// Link is the settings of a link; AToB and BToA override one direction, where
// a and b are the ends in the order of the link's name.
type Link struct {
	Direction `yaml:",inline"`
	// MTU is the largest IP packet in bytes, at both ends. Default 1500.
	MTU int `yaml:"mtu,omitempty" json:"mtu,omitempty" jsonschema:"minimum=1280,maximum=65535"`
	// Weight is the share of traffic that the link gets of several with
	// equal-cost paths, by routers and soft switches that route. Default 1.
	Weight int `yaml:"weight,omitempty" json:"weight,omitempty" jsonschema:"minimum=1,maximum=256"`
	// AToB is what differs from a to b.
	AToB *Direction `yaml:"a-to-b,omitempty" json:"a-to-b,omitempty"`
	// BToA is what differs from b to a.
	BToA *Direction `yaml:"b-to-a,omitempty" json:"b-to-a,omitempty"`
}

// Runtimes of a node.
const (
	Netns = "netns"
	VM    = "vm"
	CNI   = "cni"
)

// Kinds of RDMA device of a node's NICs.
const (
	NoRDMA = "none"
	RXE    = "rxe"
)

// Node is the settings of a node.
type Node struct {
	// Runtime is what the node is made of: netns (default), namespaces of the host's
	// kernel; docker, a container of an engine; vm, a virtual machine with a kernel of its
	// own; or cni, a container that a runtime of containers attaches by the CNI plugin
	// "railbed cni".
	Runtime string `yaml:"runtime,omitempty" json:"runtime,omitempty" jsonschema:"enum=netns,enum=docker,enum=vm,enum=cni"`
	// RDMA gives each NIC of the node an RDMA device: rxe, the kernel's RoCEv2 in
	// software (rdma_rxe); or none (default). A vm has it, with the name rxe_eth0 on
	// eth0. A netns has it where the host's kernel has it per network namespace, which
	// Linux does since 7.1; "railbed plan" prints its name.
	RDMA string `yaml:"rdma,omitempty" json:"rdma,omitempty" jsonschema:"enum=none,enum=rxe"`
	// Modules are loaded into the kernel of a vm, each after those that it depends on.
	Modules []string `yaml:"modules,omitempty" json:"modules,omitempty"`
	// NICs is how many NICs an explicit node has; generators fix it and
	// refuse another number.
	NICs int `yaml:"nics,omitempty" json:"nics,omitempty" jsonschema:"minimum=1,maximum=64"`
	// Ranks is how many ranks a workload places on the node. Rank r of a node
	// uses its NIC r modulo NICs. Default 1; a cni node has none.
	Ranks int `yaml:"ranks,omitempty" json:"ranks,omitempty" jsonschema:"minimum=0,maximum=256"`
	// CPU limits the node to this many cores; 0 (default) is no limit. A vm has as
	// many processors, rounded up, and one by default.
	CPU float64 `yaml:"cpu,omitempty" json:"cpu,omitempty" jsonschema:"minimum=0,maximum=4096"`
	// Memory limits the node's memory; 0B (default) is no limit. A vm has this much,
	// at least 256MiB, and 512MiB by default.
	Memory units.Bytes `yaml:"memory,omitempty" json:"memory,omitempty"`
	// NICQueue is what each of the eight priorities of a NIC can queue before the
	// link to a soft switch. Default 256KiB.
	NICQueue units.Bytes `yaml:"nic-queue,omitempty" json:"nic-queue,omitempty"`
	// Management gives a netns, docker or vm node a NIC beside the fabric, to the host and back,
	// made by standard CNI plugins: bridge, host-local, portmap and firewall. Default: none.
	Management *Management `yaml:"management,omitempty" json:"management,omitempty"`
	// Env is added to the environment of every command in the node.
	Env map[string]string `yaml:"env,omitempty" json:"env,omitempty" scalar:"any"`
	// Sysctls are set in the node's network namespace: net.* only.
	Sysctls   map[string]string `yaml:"sysctls,omitempty" json:"sysctls,omitempty" scalar:"any"`
	Container `yaml:",inline"`

	// Zero names the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// Step is one thing that happens. Exactly one of capture, workload, training,
// traffic, stack, exec, link, wait and sleep is set.
type Step struct {
	// At is when the step starts, counted from the start of the first step.
	// Without it the step starts when the one before it has ended.
	At *units.Duration `yaml:"at,omitempty" json:"at,omitempty"`
	// Capture starts recording packets.
	Capture *Capture `yaml:"capture,omitempty" json:"capture,omitempty"`
	// Workload runs a collective on every rank.
	Workload *Workload `yaml:"workload,omitempty" json:"workload,omitempty"`
	// Training runs a training job.
	Training *Training `yaml:"training,omitempty" json:"training,omitempty"`
	// Messages sends messages of serving, storage and other traffic that is no collective.
	Messages *Messages `yaml:"messages,omitempty" json:"messages,omitempty"`
	// Traffic sends datagrams or pause frames.
	Traffic *Traffic `yaml:"traffic,omitempty" json:"traffic,omitempty"`
	// Stack runs somebody else's programs and reports what they measure.
	Stack *Stack `yaml:"stack,omitempty" json:"stack,omitempty"`
	// Exec runs a command in nodes.
	Exec *Exec `yaml:"exec,omitempty" json:"exec,omitempty"`
	// Link changes a link while it runs.
	Link *LinkChange `yaml:"link,omitempty" json:"link,omitempty"`
	// Wait waits for the end of background workloads, training jobs, messages and traffic above, by
	// their names.
	Wait []string `yaml:"wait,omitempty" json:"wait,omitempty"`
	// Sleep waits.
	Sleep *units.Duration `yaml:"sleep,omitempty" json:"sleep,omitempty"`
}

// Capture starts recording; it lasts until the run's last step has ended.
type Capture struct {
	// At lists taps: "all", "nics", "switches", a node or switch name, a
	// "node:port", or globs of these.
	At []string `yaml:"at" json:"at"`
	// File is the name of the pcapng within the --out directory.
	File string `yaml:"file" json:"file"`
	// Filter is a pcap-filter(7) expression.
	Filter string `yaml:"filter,omitempty" json:"filter,omitempty"`
	// SnapLen is how much of each packet is kept, at least 338B: all headers and
	// telemetry. Default 576B.
	SnapLen units.Bytes `yaml:"snaplen,omitempty" json:"snaplen,omitempty"`
	// Limit is how large the file can grow. Default 2GiB.
	Limit units.Bytes `yaml:"limit,omitempty" json:"limit,omitempty"`
	// Events is all to record what enters the queues of soft switches as well.
	// Default: none.
	Events string `yaml:"events,omitempty" json:"events,omitempty" jsonschema:"enum=none,enum=all"`
}

// Workload runs a collective on every rank of the testbed.
type Workload struct {
	// Name is what checks call the workload.
	Name string `yaml:"name" json:"name"`
	// Kind is the collective: all-reduce, all-gather, reduce-scatter, broadcast, reduce,
	// gather, scatter, all-to-all or barrier, which has no data: it is correct when no rank ends before all
	// have begun. Or it is sgd, which trains a network and has its gradients cross in an
	// all-reduce or an all-gather, or moe, in which tokens go to experts and come back.
	Kind string `yaml:"kind" json:"kind" jsonschema:"enum=all-reduce,enum=all-gather,enum=reduce-scatter,enum=broadcast,enum=reduce,enum=gather,enum=scatter,enum=all-to-all,enum=barrier,enum=sgd,enum=moe"`
	// Algorithm is ring (default), from each rank to the next one, or auto: the one of the
	// following that is best for the size and the ranks, as the report shows it. An all-reduce can be by
	// tree, in two trees with half of the buffer each, halving-doubling (Rabenseifner's)
	// and, for short buffers, recursive-doubling, which has the fewest rounds; and in-network,
	// by a soft switch with aggregation, which has all ranks and no others below it, and those
	// with aggregation between it and the ranks. A
	// broadcast and a reduce can be by a binomial tree. A gather and a scatter are direct (default),
	// between the root and each other rank, or by a binomial tree. An all-reduce,
	// all-gather and reduce-scatter can be hierarchical: among the ranks of a node, of
	// which each is on a rail, and of each part along one rail. Of all-to-all it is
	// direct (default), from each rank to all others at once, or pairwise: in ranks - 1
	// phases, in each from a rank to one other (of moe, too), and with control: offline in those of the
	// computed rates. A barrier is by dissemination: in round k each rank tells the one
	// 2^k behind it. Any other can be msccl, which is what File says.
	Algorithm string `yaml:"algorithm,omitempty" json:"algorithm,omitempty" jsonschema:"enum=ring,enum=auto,enum=tree,enum=halving-doubling,enum=recursive-doubling,enum=binomial,enum=in-network,enum=hierarchical,enum=direct,enum=pairwise,enum=dissemination,enum=msccl"`
	// Switch is the one at which algorithm: in-network adds up what all ranks sent. Default:
	// the one whose busiest link carries its part in the shortest time, whose messages cross the
	// fewest links. Workloads that run at once take one each.
	Switch string `yaml:"switch,omitempty" json:"switch,omitempty"`
	// File is the XML file of algorithm: msccl, as the tools of MSCCL write it, relative
	// to this file. It is for the testbed's number of ranks, and the size is a multiple of
	// its chunks.
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Channels divide what ranks send each other into so many parts, of which each is done by
	// itself at the same time, as by channels of NCCL: those of a rank are on the NICs of its
	// node in turn, from its own one on. Default: one, by its NIC.
	Channels int `yaml:"channels,omitempty" json:"channels,omitempty" jsonschema:"minimum=1,maximum=16"`
	// Skew makes ranks get unequal parts in an all-to-all, as experts do: each rank
	// sends to the k-th most popular one in proportion to 1/k^skew (Zipf), and who is
	// how popular follows from the seed. Default 0: equal ones.
	Skew int `yaml:"skew,omitempty" json:"skew,omitempty" jsonschema:"minimum=0,maximum=4"`
	// Transport is tcp (default), the kernel's, rd, reliable datagrams by many paths,
	// or roce, reliable connections of RoCEv2. Of algorithm: in-network it is in-switch, what
	// the switch that adds up speaks.
	Transport string `yaml:"transport,omitempty" json:"transport,omitempty" jsonschema:"enum=tcp,enum=rd,enum=roce,enum=in-switch"`
	Carriage  `yaml:",inline"`
	// SGD is what is trained, with kind: sgd.
	SGD *SGD `yaml:"sgd,omitempty" json:"sgd,omitempty"`
	// MoE is the mixture of experts, with kind: moe.
	MoE *MoE `yaml:"moe,omitempty" json:"moe,omitempty"`
	// Size is of the buffer of each rank: of an all-gather what each has at the end, of a
	// reduce-scatter what each has at first. An all-to-all sends one part of it to each
	// rank, itself included. It is a multiple of the size of an element.
	// All kinds but sgd, moe and barrier want it.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Sizes, in place of size, are measured one after the other, each out of place and in
	// place, as nccl-tests does: the iterations of a size follow each other and are timed
	// together, and one more is checked. Checks of bus bandwidth judge the last size.
	Sizes *Sizes `yaml:"sizes,omitempty" json:"sizes,omitempty"`
	// Type is that of the elements: float (default), of 4B, bfloat16 or half, of 2B, or
	// int32.
	Type string `yaml:"type,omitempty" json:"type,omitempty" jsonschema:"enum=float,enum=bfloat16,enum=half,enum=int32"`
	// Op is what an all-reduce, reduce-scatter or reduce makes of the ranks' elements: sum
	// (default), max, min or avg.
	Op string `yaml:"op,omitempty" json:"op,omitempty" jsonschema:"enum=sum,enum=max,enum=min,enum=avg"`
	// Root is the rank from which a broadcast or a scatter comes and to which a reduce or a gather goes.
	// Default 0.
	Root int `yaml:"root,omitempty" json:"root,omitempty" jsonschema:"minimum=0,maximum=65535"`
	// Iterations are measured. Default 5, of sgd 100.
	Iterations int `yaml:"iterations,omitempty" json:"iterations,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Warmup iterations run before and are not measured. Default 1; sgd has none.
	Warmup int `yaml:"warmup,omitempty" json:"warmup,omitempty" jsonschema:"minimum=0,maximum=1000000"`
	// Background lets the next step start at once.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout ends the workload as failed. Default 2m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// Zero names the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// Sizes are those of a workload that measures several.
type Sizes struct {
	// From is the first one.
	From units.Bytes `yaml:"from" json:"from"`
	// To is what none exceeds.
	To units.Bytes `yaml:"to" json:"to"`
	// Factor is that from one to the next. Default 2.
	Factor int `yaml:"factor,omitempty" json:"factor,omitempty" jsonschema:"minimum=2,maximum=1024"`
}

// Exec runs a command in nodes and fails the step when it does not exit with
// the expected code. A program that the node does not have, or that exits with 127 as
// a shell does then, makes the run UNSUPPORTED unless 127 is expected.
type Exec struct {
	// Name is for log files.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Nodes are names or globs. One that matches no node is of routers with daemons.
	Nodes []string `yaml:"nodes" json:"nodes"`
	// Command is the program and its arguments; no shell reads it. The program railbed is
	// the one that runs the file.
	Command []string `yaml:"command" json:"command" scalar:"any"`
	// Background lets the next step start at once.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout ends the command as failed. Default 1m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Expect is the exit code that passes. Default 0.
	Expect *int `yaml:"expect,omitempty" json:"expect,omitempty" jsonschema:"minimum=0,maximum=255"`
	// Ends are routing daemons that the command is meant to end. The run fails where one
	// has not ended, and where one ends that no step names.
	Ends []string `yaml:"ends,omitempty" json:"ends,omitempty"`
}

// LinkChange changes a link while it runs.
type LinkChange struct {
	// Where is a link's name or glob, "leaf1--spine2", optionally followed by
	// " a-to-b" or " b-to-a".
	Where string `yaml:"where" json:"where"`
	// State takes the link, or the one direction, up or down. Down in one direction
	// loses what is sent that way, and both ends keep their carrier; up of the whole
	// link undoes that, too.
	State string `yaml:"state,omitempty" json:"state,omitempty" jsonschema:"enum=up,enum=down"`
	// Set overrides what the link does to packets.
	Set *Direction `yaml:"set,omitempty" json:"set,omitempty"`
	// For is how long until the change is undone. Default: never.
	For units.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// Check is one thing that must hold. Exactly one of the fields is set.
type Check struct {
	// Workload judges a workload's own results.
	Workload *WorkloadCheck `yaml:"workload,omitempty" json:"workload,omitempty"`
	// Packets judges the capture.
	Packets *PacketsCheck `yaml:"packets,omitempty" json:"packets,omitempty"`
	// Fidelity is the worst verdict that passes: faithful or degraded.
	Fidelity string `yaml:"fidelity,omitempty" json:"fidelity,omitempty" jsonschema:"enum=faithful,enum=degraded"`
}

// PacketsCheck judges the capture. Exactly one of the fields is set.
type PacketsCheck struct {
	// BytesPerRank compares what each rank sent with a formula.
	BytesPerRank *BytesPerRank `yaml:"bytes-per-rank,omitempty" json:"bytes-per-rank,omitempty"`
	// RankNIC names a workload: all its traffic leaves by its ranks' own NICs.
	RankNIC string `yaml:"rank-nic,omitempty" json:"rank-nic,omitempty"`
	// Crossed names a stack's run: what each rank had to send to other nodes left by the
	// rank's own NIC, and by no other of its node, within the time of the run.
	Crossed string `yaml:"crossed,omitempty" json:"crossed,omitempty"`
	// RailLocal names a workload: none of its packets passes a link between switches,
	// as what stays on rails does not.
	RailLocal string `yaml:"rail-local,omitempty" json:"rail-local,omitempty"`
	// PartialSums names a workload with algorithm: in-network: each switch that adds up below the
	// root sends one sum of all below it up for each round of a slot, and again only where one of
	// them asked again.
	PartialSums string `yaml:"partial-sums,omitempty" json:"partial-sums,omitempty"`
	// Conservation names a switch or a glob: what enters a switch leaves it.
	Conservation string `yaml:"conservation,omitempty" json:"conservation,omitempty"`
	// PathSpread judges how traffic is spread over equal-cost uplinks.
	PathSpread *PathSpread `yaml:"path-spread,omitempty" json:"path-spread,omitempty"`
	// Marks judges how many packets carry Congestion Experienced.
	Marks *MarksCheck `yaml:"marks,omitempty" json:"marks,omitempty"`
	// Drops judges what soft switches and emulated NICs dropped, by reason.
	Drops *DropsCheck `yaml:"drops,omitempty" json:"drops,omitempty"`
	// Lossless requires that what an emulated NIC took reaches the far NIC.
	Lossless *LosslessCheck `yaml:"lossless,omitempty" json:"lossless,omitempty"`
	// Trims judges packets that switches cut to their headers.
	Trims *TrimsCheck `yaml:"trims,omitempty" json:"trims,omitempty"`
	// Pauses judges the PFC frames, and that ports obeyed them.
	Pauses *PausesCheck `yaml:"pauses,omitempty" json:"pauses,omitempty"`
	// Deadlock is whether there must be a cycle of switches that pause each other
	// and send nothing: none or some.
	Deadlock string `yaml:"deadlock,omitempty" json:"deadlock,omitempty" jsonschema:"enum=none,enum=some"`
	// Reordering judges the share of packets that arrived out of order.
	Reordering *ReorderingCheck `yaml:"reordering,omitempty" json:"reordering,omitempty"`
	// Outage judges for how long flows of datagrams were cut off.
	Outage *OutageCheck `yaml:"outage,omitempty" json:"outage,omitempty"`
	// QueueDepth judges how long queues of soft switches were.
	QueueDepth *QueueDepthCheck `yaml:"queue-depth,omitempty" json:"queue-depth,omitempty"`
	// Pacing holds that rd sends nothing ahead of the schedule of its rate.
	Pacing *PacingCheck `yaml:"pacing,omitempty" json:"pacing,omitempty"`
	// RoCE holds a rule of RoCEv2 over every connection.
	RoCE *RoCECheck `yaml:"roce,omitempty" json:"roce,omitempty"`
	// That is a sentence about the packets of rd, which holds or not. They are
	// followed from NIC to NIC.
	That string `yaml:"that,omitempty" json:"that,omitempty" jsonschema:"enum=every rd message is placed exactly once,enum=no rd packet is sent again without need"`
}

// BytesPerRank compares the payload that each rank sent, in all and to each other rank, with what the
// algorithm sends for the size, type and number of ranks.
// A text instead of a mapping is the name of the workload.
type BytesPerRank struct {
	// Workload is the workload's name. Default: the only one of the file.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty"`
	// Formula is that of the workload's algorithm and kind, and may be left out. What is wanted is
	// counted in the algorithm's steps, to the byte, also where ranks cannot share the size evenly.
	// Headers and replies of a transport do not count, nor does what ranks of one node send to each
	// other, which passes no link. Where ranks share the size evenly, each sends of it 2(n-1)/n
	// with ring-all-reduce; (n-1)/n with ring-all-gather, ring-reduce-scatter and all-to-all, or
	// there, with a skew, all but its own part; 1/2 for each neighbour in each of two trees with
	// tree-all-reduce; 2(p-1)/p among p ranks, the greatest power of two, and all of it to and from
	// each other one, with halving-doubling-all-reduce; log2(p) times all of it, and the same of
	// the others, with recursive-doubling-all-reduce. Of hierarchical ones it is what goes to other
	// nodes: of N nodes 2(N-1)/N of the rail's part of the size with hierarchical-all-reduce, and
	// half of that with the others. With in-network-all-reduce each rank sends the size once. With
	// msccl it is what the file's own sends to other nodes are. Of a broadcast and a reduce all of
	// it with ring, but nothing from whom the ring ends at, and with binomial all of it to each
	// child or to the parent. With dissemination-barrier it is messages without a byte, two for
	// each of the log2(n) rounds, rounded up: that of the round, and the leave for the one to come.
	// With moe it is, from each rank to each other one, its messages to that one's experts, and
	// those of its own experts back. Of a training job it is training: what its program says of
	// each rank.
	Formula string `yaml:"formula,omitempty" json:"formula,omitempty" jsonschema:"enum=ring-all-reduce,enum=tree-all-reduce,enum=halving-doubling-all-reduce,enum=recursive-doubling-all-reduce,enum=hierarchical-all-reduce,enum=in-network-all-reduce,enum=ring-all-gather,enum=hierarchical-all-gather,enum=ring-reduce-scatter,enum=hierarchical-reduce-scatter,enum=ring-broadcast,enum=binomial-broadcast,enum=ring-reduce,enum=binomial-reduce,enum=auto-all-reduce,enum=auto-all-gather,enum=auto-reduce-scatter,enum=auto-broadcast,enum=auto-reduce,enum=all-to-all,enum=dissemination-barrier,enum=moe,enum=msccl,enum=training,enum=messages"`
	// Tolerance is the share by which the bytes may differ: of what the rank is to send, or,
	// where that is nothing, of the most that a rank is to. Default 0%: not by a byte.
	Tolerance units.Ratio `yaml:"tolerance,omitempty" json:"tolerance,omitzero"`
}

func (b *BytesPerRank) name() *string { return &b.Workload }

// PathSpread judges how traffic is spread over a switch's equal-cost uplinks. By
// default every one must carry some.
type PathSpread struct {
	// Switch is a name or glob.
	Switch string `yaml:"switch" json:"switch"`
	// MinShare is the least share of an uplink, of the mean over them. Default
	// 0%: any traffic will do.
	MinShare units.Ratio `yaml:"min-share,omitempty" json:"min-share,omitzero"`
	// Polarised requires the opposite: an uplink without traffic, with flows
	// enough that an even hash would have used it.
	Polarised bool `yaml:"polarised,omitempty" json:"polarised,omitempty"`
	// Flows requires besides that each flow keeps to one uplink, or that each
	// with packets enough uses all of them.
	Flows string `yaml:"flows,omitempty" json:"flows,omitempty" jsonschema:"enum=one-path,enum=every-path"`
}
