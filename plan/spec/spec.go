// Package spec defines the file that a user writes: its types, their checks and defaults, its variables and
// matrix, and the JSON Schema made from the types. Package strictyaml decodes the file.
//
// A spec is inert data. The package does not look at the host, and two decodings of the same bytes
// are equal.
package spec

import (
	"railbed/internal/units"
)

// Testbed is a file: a cluster and, in a scenario, the steps to run on it and the checks that must
// hold afterwards.
type Testbed struct {
	// Name is the testbed's name on the host: 1 to 24 characters of a-z, 0-9 and "-".
	Name string `yaml:"name" json:"name"`
	// Description is one line for people. Default none.
	Description string `yaml:"description,omitempty" json:"description,omitempty"`
	// Seed is the seed of every random draw and hash of the testbed. Default 1.
	Seed uint64 `yaml:"seed,omitempty" json:"seed,omitempty" jsonschema:"minimum=1" unit:"none"`
	// Dilation slows links, and stretches delays and all times of the steps, by this factor. A
	// small machine can then carry a fast fabric. The file and the report state virtual values.
	// Every switch must be soft. Default 1.
	Dilation uint64 `yaml:"dilation,omitempty" json:"dilation,omitempty" jsonschema:"minimum=1,maximum=1000" unit:"none"`
	// AcceptUndilated lists the parts that may keep real time in a dilated run. tcp is the kernel's
	// timers, except the minimum retransmission timeout, which is stretched. quic is all timers of
	// QUIC. programs are the programs that exec and stack run. A dilated run in which another part
	// keeps real time is at best degraded. Default none.
	AcceptUndilated []string `yaml:"accept-undilated,omitempty" json:"accept-undilated,omitempty"`
	// Addressing overrides the address pools. Default: the defaults of its keys.
	Addressing Addressing `yaml:"addressing,omitempty" json:"addressing,omitempty"`
	// Fabric is the network between the nodes.
	Fabric Fabric `yaml:"fabric" json:"fabric"`
	// Nodes maps a node's name, a glob over names, or "default" to settings. A name overrides a
	// glob, a later glob overrides an earlier one, and every glob overrides "default". Default: all nodes
	// have the defaults of their keys.
	Nodes Ordered[Node] `yaml:"nodes,omitempty" json:"nodes,omitempty"`
	// Requires lists the features of the host that the file needs, as `railbed doctor` names them, and
	// programs, such as redis-server. Without one of them the run is UNSUPPORTED, and `railbed test` skips
	// it. Railbed finds programs by PATH. A program that only steps in containers name has to be in their
	// images. If such a step fails and its container lacks the program, the run is UNSUPPORTED. A missing
	// program that is not in this list makes its step fail. A name with a slash is a file or a folder of the
	// host, relative to this file, such as ./root.tar that a container needs. Default none.
	Requires []string `yaml:"requires,omitempty" json:"requires,omitempty"`
	// Steps run in order. A step with at starts that long after the first step. Default none.
	Steps []Step `yaml:"steps,omitempty" json:"steps,omitempty"`
	// Checks are judged after the last step. Default none.
	Checks []Check `yaml:"checks,omitempty" json:"checks,omitempty"`

	// Source holds the position of every value, for errors found later.
	Source *Source `yaml:"-" json:"-"`
}

// Values of AcceptUndilated: what keeps real time in a dilated run.
const (
	UndilatedTCP      = "tcp"
	UndilatedQUIC     = "quic"
	UndilatedPrograms = "programs"
)

// MostDilation is the greatest dilation.
const MostDilation = 1000

// Undilated lists all values of AcceptUndilated.
var Undilated = []string{UndilatedTCP, UndilatedQUIC, UndilatedPrograms}

// Undilated returns the values of AcceptUndilated that the file's steps use, in the order of the
// variable of the same name. Without dilation it returns nil.
func (t *Testbed) Undilated() []string {
	if t.Dilation <= 1 {
		return nil
	}
	uses := map[string]bool{}
	for _, step := range t.Steps {
		t := step.Traits()
		uses[t.Transport] = true // tcp and quic are in the list, the others keep the testbed's time
		uses[UndilatedPrograms] = uses[UndilatedPrograms] || t.Programs
	}
	var found []string
	for _, what := range Undilated {
		if uses[what] {
			found = append(found, what)
		}
	}
	return found
}

// Names of topologies, for Fabric.Topology.
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

// Fabric is the switches and links, generated or explicit.
type Fabric struct {
	// Topology is the name of a generator, or explicit.
	Topology string `yaml:"topology" json:"topology" jsonschema:"enum=explicit,enum=single-switch,enum=leaf-spine,enum=fat-tree,enum=rail-optimized,enum=hpn,enum=torus,enum=dragonfly"`
	// Params are the generator's parameters, which are whole numbers. Default: the generator's.
	//
	//   - single-switch: {hosts}.
	//   - leaf-spine: {leaves, spines, hosts-per-leaf, striped}.
	//   - fat-tree: {k}.
	//   - rail-optimized: {servers, rails, spines}.
	//   - hpn: {segments, servers, rails, aggs}. Each rail of a server has a NIC at each of two ToRs.
	//   - torus: {x, y, z, hosts-per-switch}.
	//   - dragonfly: {groups, switches, hosts-per-switch, global-links}.
	Params Ordered[int] `yaml:"params,omitempty" json:"params,omitempty" unit:"none"`
	// Switch holds the settings of every switch that switches does not override. Default: the defaults
	// of its keys.
	Switch Switch `yaml:"switch,omitempty" json:"switch,omitempty"`
	// Switches are the explicit switches, or overrides of generated switches by name or glob. Default
	// none.
	Switches Ordered[Switch] `yaml:"switches,omitempty" json:"switches,omitempty"`
	// Hosts are the names of explicit nodes. Only topology: explicit has them. Default none.
	Hosts []string `yaml:"hosts,omitempty" json:"hosts,omitempty"`
	// Connect lists explicit links as "a:eth0 -- b:p1" or as "a -- b", which numbers the ports in
	// order. Only topology: explicit has it. Default none.
	Connect []string `yaml:"connect,omitempty" json:"connect,omitempty"`
	// Links maps "default", a class ("host", "fabric") or a link's name or glob ("leaf1--spine2")
	// to settings. Later and more specific entries override others. Default: all links have the
	// defaults of their keys.
	Links Ordered[Link] `yaml:"links,omitempty" json:"links,omitempty"`
	// Routing runs routing daemons on routers. Default: routers have the plan's routes.
	Routing *Routing `yaml:"routing,omitempty" json:"routing,omitempty"`
	// Memory bounds the memory of all packets in soft switches, links and emulated NICs together.
	// Default 256MiB.
	Memory units.Bytes `yaml:"memory,omitempty" json:"memory,omitempty"`
}

// Link is the settings of a link. a-to-b and b-to-a override one direction, where a and b are the ends
// in the order of the link's name.
type Link struct {
	Direction `yaml:",inline"`
	// MTU is the largest IP packet in bytes, at both ends. Default 1500.
	MTU int `yaml:"mtu,omitempty" json:"mtu,omitempty" jsonschema:"minimum=1280,maximum=65535" unit:"bytes"`
	// Weight is the link's share of the traffic over several links with equal-cost paths. Routers
	// and soft switches that route use it. Default 1.
	Weight int `yaml:"weight,omitempty" json:"weight,omitempty" jsonschema:"minimum=1,maximum=256" unit:"none"`
	// AToB overrides settings of the direction from a to b. Default: the link's settings.
	AToB *Direction `yaml:"a-to-b,omitempty" json:"a-to-b,omitempty"`
	// BToA overrides settings of the direction from b to a. Default: the link's settings.
	BToA *Direction `yaml:"b-to-a,omitempty" json:"b-to-a,omitempty"`
}

// Runtimes of a node.
const (
	Netns = "netns"
	VM    = "vm"
	CNI   = "cni"
)

// Kinds of RDMA devices of a node's NICs.
const (
	NoRDMA = "none"
	RXE    = "rxe"
)

// Node is the settings of a node.
type Node struct {
	// Runtime is the kind of the node.
	//
	//   - netns (default): namespaces of the host's kernel.
	//   - docker: a container of an engine.
	//   - vm: a virtual machine with its own kernel.
	//   - cni: a container whose runtime attaches it by the CNI plugin "railbed cni".
	Runtime string `yaml:"runtime,omitempty" json:"runtime,omitempty" jsonschema:"enum=netns,enum=docker,enum=vm,enum=cni"`
	// RDMA gives each NIC of the node an RDMA device: rxe, the kernel's software RoCEv2 (rdma_rxe);
	// or none (default). In a vm the device of eth0 has the name rxe_eth0. A netns needs a host
	// kernel with rxe per network namespace, which Linux has since 7.1. "railbed plan" prints the
	// device's name there.
	RDMA string `yaml:"rdma,omitempty" json:"rdma,omitempty" jsonschema:"enum=none,enum=rxe"`
	// Modules are loaded into the kernel of a vm, each after the modules that it depends on. Default
	// none.
	Modules []string `yaml:"modules,omitempty" json:"modules,omitempty"`
	// NICs is the number of NICs of an explicit node. Generators fix it and refuse another number.
	// Default: the number of its links.
	NICs int `yaml:"nics,omitempty" json:"nics,omitempty" jsonschema:"minimum=1,maximum=64" unit:"NICs"`
	// Ranks is the number of ranks that a workload places on the node. Rank r of a node uses its
	// NIC r modulo NICs or, with topology hpn, the two NICs of its rail r modulo rails. Default 1. A cni node
	// has none.
	Ranks int `yaml:"ranks,omitempty" json:"ranks,omitempty" jsonschema:"minimum=0,maximum=256" unit:"ranks"`
	// CPU limits the node to this many cores. 0 (default) is no limit. A vm has as many processors,
	// rounded up, and one by default.
	CPU float64 `yaml:"cpu,omitempty" json:"cpu,omitempty" jsonschema:"minimum=0,maximum=4096" unit:"cores"`
	// Memory limits the node's memory, with the queues of ranks that bypass their kernel. 0B (default)
	// is no limit. A vm has this much memory, at least 256MiB, and 512MiB by default.
	Memory units.Bytes `yaml:"memory,omitempty" json:"memory,omitempty"`
	// NICQueue is the number of bytes that each of a NIC's eight priorities can queue before the
	// link to a soft switch. It also bounds the kernel's queue in front of the NIC. That queue holds at
	// most 100ms of the link's rate, unless the link has a queue of its own. A full queue drops packets.
	// The kernel drops them before the NIC's tap, so no capture has them. The report counts them as
	// nic-queue. The NIC drops them behind the tap, with the reason nic-overrun. Default 256KiB.
	NICQueue units.Bytes `yaml:"nic-queue,omitempty" json:"nic-queue,omitempty"`
	// NICPath is how packets of workloads with transport rd or roce, or with algorithm in-network, reach a
	// NIC at a soft switch. With bypass they pass by the node's kernel, in queues of shared memory, as
	// programs with RDMA do. All other packets take the kernel. Default: bypass at a soft switch, and kernel
	// in a node with runtime vm or cni, or with topology hpn.
	NICPath string `yaml:"nic-path,omitempty" json:"nic-path,omitempty" jsonschema:"enum=kernel,enum=bypass"`
	// NICMirror makes an interface mirror0 in the node for its first NIC, mirror1 for its second, and so on.
	// They show copies of the frames that programs send and receive past the kernel, for tcpdump and
	// similar tools. Each copy takes processor time of the soft switches. Default false.
	NICMirror *bool `yaml:"nic-mirror,omitempty" json:"nic-mirror,omitempty"`
	// Management gives a netns, docker or vm node a NIC to the host, apart from the fabric.
	// Standard CNI plugins make it: bridge, host-local, portmap and firewall. Default: none.
	Management *Management `yaml:"management,omitempty" json:"management,omitempty"`
	// Env is added to the environment of every command in the node. Default none.
	Env map[string]string `yaml:"env,omitempty" json:"env,omitempty" scalar:"any"`
	// Sysctls are set in the node's network namespace: net.* only. They replace Railbed's own settings,
	// such as net.ipv4.ip_forward: 0. A sysctl that the plan contradicts is refused, such as
	// net.ipv6.conf.all.disable_ipv6: 1. Default: the kernel's.
	Sysctls   map[string]string `yaml:"sysctls,omitempty" json:"sysctls,omitempty" scalar:"any"`
	Container `yaml:",inline"`

	// Zero marks the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// Step is a step of a scenario. Exactly one of capture, workload, training, messages, traffic,
// probe, stack, exec, link, fault, wait and sleep is set.
type Step struct {
	// At is the time at which the step starts, counted from the start of the first step. The step runs
	// beside the steps above it. Default: when the step before it has ended.
	At *units.Duration `yaml:"at,omitempty" json:"at,omitempty"`
	// When is an event with which the step starts, as in the key start of captures. If the event does
	// not happen before all other steps have ended, the step is left out, and a run that would pass is
	// INCONCLUSIVE. Default: when the step before it has ended.
	When string `yaml:"when,omitempty" json:"when,omitempty"`
	// After lists earlier steps by name. The step starts when all of them have ended. A command with
	// background: true has to end by itself then, as with wait. Default: the step before it.
	After []string `yaml:"after,omitempty" json:"after,omitempty"`
	// Every repeats a link change or fault with for, or a command, with this time between two starts.
	// The next step does not wait for the repetitions. Default: once.
	Every units.Duration `yaml:"every,omitempty" json:"every,omitzero"`
	// Times is how often the step is done with every. Default: until all steps without every have ended.
	Times int `yaml:"times,omitempty" json:"times,omitempty" jsonschema:"minimum=1" unit:"times"`
	// Until is the time, from the start of the first step, after which every does not start the step
	// again. Default: no limit.
	Until units.Duration `yaml:"until,omitempty" json:"until,omitzero"`
	// Retry repeats a command that fails. The command's logs have the output of all attempts. Default: the
	// command is not repeated.
	Retry *Retry `yaml:"retry,omitempty" json:"retry,omitempty"`
	// Fails is set if the ranks or programs of a workload, training, messages or stack step have to end
	// with an error, for example after a crash. The step fails if they succeed, or if they do not end
	// in time. Default false.
	Fails bool `yaml:"fails,omitempty" json:"fails,omitempty"`
	// Capture records packets until the run's last step has ended.
	Capture *Capture `yaml:"capture,omitempty" json:"capture,omitempty" action:""`
	// Workload runs a collective on every rank.
	Workload *Workload `yaml:"workload,omitempty" json:"workload,omitempty" action:"sends"`
	// Training runs a training job.
	Training *Training `yaml:"training,omitempty" json:"training,omitempty" action:"sends"`
	// Messages sends messages of serving, storage and other traffic outside of collectives.
	Messages *Messages `yaml:"messages,omitempty" json:"messages,omitempty" action:"sends"`
	// Traffic sends datagrams to other nodes, or pause frames to switches, for a while.
	Traffic *Traffic `yaml:"traffic,omitempty" json:"traffic,omitempty" action:"sends"`
	// Probe sends telemetry probes and judges what switches wrote into them.
	Probe *Probe `yaml:"probe,omitempty" json:"probe,omitempty" action:""`
	// Stack runs third-party programs and reports their measurements.
	Stack *Stack `yaml:"stack,omitempty" json:"stack,omitempty" action:"sends"`
	// Exec runs a command in nodes.
	Exec *Exec `yaml:"exec,omitempty" json:"exec,omitempty" action:""`
	// Link changes a link while it runs.
	Link *LinkChange `yaml:"link,omitempty" json:"link,omitempty" action:""`
	// Fault harms packets, nodes or switches while it lasts.
	Fault *Fault `yaml:"fault,omitempty" json:"fault,omitempty" action:""`
	// Wait waits for the end of earlier steps with background: true, by their names. A command among
	// them has to end by itself, with the exit code that passes and within its timeout.
	Wait []string `yaml:"wait,omitempty" json:"wait,omitempty" action:""`
	// Sleep waits for this time.
	Sleep *units.Duration `yaml:"sleep,omitempty" json:"sleep,omitempty" action:""`
}

// Capture starts a recording, which lasts until the run's last step has ended.
type Capture struct {
	// At lists taps: "all", "nics", "switches", a node or switch name, a
	// "node:port", or globs of these.
	At []string `yaml:"at" json:"at" names:"port"`
	// File is the name of the pcapng file in the --out directory.
	File string `yaml:"file" json:"file"`
	// Filter is a pcap-filter(7) expression. Default: all packets.
	Filter string `yaml:"filter,omitempty" json:"filter,omitempty"`
	// SnapLen is the number of bytes kept of each packet. The minimum is 338B, which holds all
	// headers and telemetry. If it cuts the payload of RoCEv2 packets, Wireshark marks them as
	// malformed, although their fields are right. 1600B keeps packets whole on links with an MTU of
	// 1500. Default 576B.
	SnapLen units.Bytes `yaml:"snaplen,omitempty" json:"snaplen,omitempty"`
	// Limit is the largest size of the file. Default 2GiB.
	Limit units.Bytes `yaml:"limit,omitempty" json:"limit,omitempty"`
	// Events is all to record also the packets that enter the queues of soft switches, or none
	// (default).
	Events string `yaml:"events,omitempty" json:"events,omitempty" jsonschema:"enum=none,enum=all"`
	// Last keeps only the packets of this time before the end, such as 5s. If a step fails, these are
	// the packets before the failure. With start, it is the time before the start. Default: all
	// packets.
	Last units.Duration `yaml:"last,omitempty" json:"last,omitzero"`
	// LastBytes bounds the size of the packets that last keeps. Without last, it keeps the last packets of
	// this size. Default 256MiB with last, all packets without.
	LastBytes units.Bytes `yaml:"last-bytes,omitempty" json:"last-bytes,omitempty"`
	// Rotate is the size after which another file begins, from 64KiB on: run.pcapng, run-2.pcapng,
	// run-3.pcapng. Checks and commands read them as one recording. limit is for all of them together.
	// Default: one file.
	Rotate units.Bytes `yaml:"rotate,omitempty" json:"rotate,omitempty"`
	// Start lists events. The file begins with the first of them. An event is one of Default: the file
	// begins with the step.
	//
	//   - FILTER: the first packet that matches a display filter, as railbed decode reads it.
	//   - 100th FILTER: the hundredth such packet.
	//   - pause > 10ms: flow control has stopped a port for longer than this. With "at leaf1:*" after it,
	//     only these taps count.
	//   - counter SERIES > 5: a counter of the testbed's metrics, such as
	//     railbed_node_drops_total{node="h1"}, has grown by more than this since the recording began.
	Start []string `yaml:"start,omitempty" json:"start,omitempty"`
	// Stop lists events as start does. The file ends with the first of them. Default: the file ends
	// with the run.
	Stop []string `yaml:"stop,omitempty" json:"stop,omitempty"`
	// After is the time for which the file continues after the event of stop. Default 0s.
	After units.Duration `yaml:"after,omitempty" json:"after,omitzero"`
}

// Workload runs a collective on every rank of the testbed.
type Workload struct {
	// Name is the name by which checks refer to the workload.
	Name string `yaml:"name" json:"name"`
	// Kind is the collective: {Kinds}.
	//
	//   - {About}
	//   - sgd trains a network and exchanges its gradients in an all-reduce or an all-gather.
	//   - moe sends tokens to experts and back.
	Kind string `yaml:"kind" json:"kind" jsonschema:"enum=KINDS"`
	// Algorithm is the algorithm of the collective. Default: ring, for all-to-all, gather and scatter
	// direct.
	//
	//   - ring: from each rank to the next rank.
	//   - auto: ring, tree, recursive-doubling, binomial, direct or hierarchical, by the size and
	//     the ranks. The report shows the choice.
	//   - tree: an all-reduce in two trees with half of the buffer each.
	//   - halving-doubling: an all-reduce by Rabenseifner's algorithm.
	//   - recursive-doubling: an all-reduce with the fewest rounds, for short buffers.
	//   - in-network: an all-reduce by a soft switch with aggregation. Below the switch are all
	//     ranks and no other nodes. Switches with aggregation between it and the ranks take part.
	//   - binomial: a broadcast, reduce, gather or scatter in a binomial tree.
	//   - hypercube: an all-gather by a power of two ranks, as nccl-tests' hypercube. In round k
	//     each rank exchanges its 2^k parts with the rank whose number differs in bit k.
	//   - hierarchical: an all-reduce, all-gather or reduce-scatter, first among the ranks of a
	//     node, each of which is on a rail, and then each part along one rail.
	//   - direct: an all-to-all, gather or scatter, from each rank to all others at once, or between
	//     the root and each other rank.
	//   - pairwise: an all-to-all or moe in ranks - 1 phases, in each from a rank to one other.
	//     With control: offline it uses the phases of the computed rates.
	//   - dissemination (a barrier's): in round k each rank notifies the rank 2^k behind it.
	//   - msccl: any collective but a barrier, as the file of the key file defines it.
	Algorithm string `yaml:"algorithm,omitempty" json:"algorithm,omitempty" jsonschema:"enum=ring,enum=auto,enum=tree,enum=halving-doubling,enum=recursive-doubling,enum=binomial,enum=in-network,enum=hypercube,enum=hierarchical,enum=direct,enum=pairwise,enum=dissemination,enum=msccl"`
	// Switch is the switch at which algorithm: in-network adds up the data of all ranks. Default:
	// the switch whose busiest link carries its part in the shortest time and, among these, whose
	// messages cross the fewest links. Workloads that run at once use different switches.
	Switch string `yaml:"switch,omitempty" json:"switch,omitempty" names:"switch"`
	// File is the XML file of algorithm: msccl, in the format of MSCCL's tools, relative to this file.
	// It must be for the testbed's number of ranks. The size must be a multiple of the file's chunks.
	// Default none.
	File string `yaml:"file,omitempty" json:"file,omitempty"`
	// Channels is the number of parts into which the data between ranks are divided. Each part is
	// transferred separately and at the same time, as by channels of NCCL. The channels of a rank
	// use the NICs of its node in turn, its own NIC first. Default: one, by its own NIC.
	Channels int `yaml:"channels,omitempty" json:"channels,omitempty" jsonschema:"minimum=1,maximum=16" unit:"channels"`
	// Skew gives ranks unequal parts in an all-to-all, as experts have. Each rank sends to the k-th
	// most popular rank in proportion to 1/k^skew (Zipf). The seed decides the order of popularity.
	// Default 0: equal parts.
	Skew int `yaml:"skew,omitempty" json:"skew,omitempty" jsonschema:"minimum=0,maximum=4" unit:"none"`
	// Transport is tcp (default), the kernel's TCP; rd, reliable datagrams over many paths; roce,
	// reliable connections of RoCEv2; or quic, QUIC in userspace. Algorithm: in-network has the
	// transport in-switch, the protocol of the switch that adds up.
	Transport string `yaml:"transport,omitempty" json:"transport,omitempty" jsonschema:"enum=tcp,enum=rd,enum=roce,enum=quic,enum=in-switch"`
	Carriage  `yaml:",inline"`
	// SGD is the training of kind: sgd, data-parallel stochastic gradient descent. Default: the defaults of
	// its keys.
	SGD *SGD `yaml:"sgd,omitempty" json:"sgd,omitempty"`
	// MoE is the mixture of experts of kind: moe. Default none.
	MoE *MoE `yaml:"moe,omitempty" json:"moe,omitempty"`
	// Size is the size of each rank's buffer, a multiple of the size of an element. All kinds but sgd,
	// moe and barrier need it. For an all-gather the buffer is the result, and for a reduce-scatter the
	// input. An all-to-all sends one part of the buffer to each rank, itself included. Default none.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// Sizes measures several sizes in place of size, one after the other, each out of place and in
	// place, as nccl-tests does. The iterations of a size follow each other and are timed together. One
	// more iteration is checked. Checks of bus bandwidth judge the last size. Default: size alone.
	Sizes *Sizes `yaml:"sizes,omitempty" json:"sizes,omitempty"`
	// Type is the type of the elements, as nccl-tests names it. Default: float, of 4 bytes. int8,
	// uint8, fp8_e4m3 and fp8_e5m2 have 1 byte, half and bfloat16 2, int32 and uint32 4, and int64,
	// uint64 and double 8. Integers wrap around. fp8 saturates. In-network has float, bfloat16,
	// half and int32.
	Type string `yaml:"type,omitempty" json:"type,omitempty" jsonschema:"enum=int8,enum=uint8,enum=int32,enum=uint32,enum=int64,enum=uint64,enum=half,enum=float,enum=double,enum=bfloat16,enum=fp8_e4m3,enum=fp8_e5m2"`
	// Op is the operation that an all-reduce, reduce-scatter or reduce applies to the ranks'
	// elements: sum (default), prod, max, min or avg. In-network has no prod.
	Op string `yaml:"op,omitempty" json:"op,omitempty" jsonschema:"enum=sum,enum=prod,enum=max,enum=min,enum=avg"`
	// Root is the rank from which a broadcast or a scatter comes and to which a reduce or a gather
	// goes. Default 0.
	Root int `yaml:"root,omitempty" json:"root,omitempty" jsonschema:"minimum=0,maximum=65535" unit:"none"`
	// Iterations is the number of measured iterations. Default 5, for sgd 100.
	Iterations int `yaml:"iterations,omitempty" json:"iterations,omitempty" jsonschema:"minimum=1,maximum=1000000" unit:"iterations"`
	// Warmup is the number of iterations that run before and are not measured. Default 1. sgd has
	// none.
	Warmup int `yaml:"warmup,omitempty" json:"warmup,omitempty" jsonschema:"minimum=0,maximum=1000000" unit:"iterations"`
	// Background starts the next step at once. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout is the time after which the workload fails. Default 2m.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// Zero marks the fields that are zero on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// Sizes is the range of sizes of a workload that measures several.
type Sizes struct {
	// From is the first size.
	From units.Bytes `yaml:"from" json:"from"`
	// To is the limit that no size exceeds.
	To units.Bytes `yaml:"to" json:"to"`
	// Factor is the factor from a size to the next. Default 2.
	Factor int `yaml:"factor,omitempty" json:"factor,omitempty" jsonschema:"minimum=2,maximum=1024" unit:"none"`
}

// Exec runs a command in nodes. The step fails if the command does not exit with the expected code.
// If the node does not have the program, or the command exits with 127 as a shell then does, the step fails
// too, unless 127 is expected. If the host may lack a program, name the program in requires: the run is then
// UNSUPPORTED without it.
type Exec struct {
	// Name is the name of the command's log files. If the command is repeated, they have the output of
	// all runs. Default: "step" and the step's number.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`
	// Nodes lists names or globs of nodes. An entry that matches no node names routers with routing
	// daemons.
	Nodes []string `yaml:"nodes" json:"nodes" names:"host"`
	// Command is the program and its arguments. It is not run by a shell. The program name railbed
	// stands for the binary that runs this file.
	Command []string `yaml:"command" json:"command" scalar:"any"`
	// Workdir is the directory in which the command runs, and to which a command such as ./server is
	// relative. It is relative to the file's folder. In a container it is an absolute path of the
	// container. If the node lacks the directory, the step fails.
	//
	// Default: the file's folder, and in containers the working directory of the image. Nodes do not see
	// the host's /tmp, /run and /dev/shm. Virtual machines do not see its /var/tmp, /home and /root
	// either. For a file there the default is /, and the run prints a note.
	Workdir string `yaml:"workdir,omitempty" json:"workdir,omitempty"`
	// Background starts the next step at once. The run ends the command when all other steps have
	// ended, unless wait or after names it. Default false.
	Background bool `yaml:"background,omitempty" json:"background,omitempty"`
	// Timeout is the time after which the command fails. Default 1m. A command with background: true
	// that neither wait nor after names has none by default.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// Expect is the exit code that passes. Default 0.
	Expect *int `yaml:"expect,omitempty" json:"expect,omitempty" jsonschema:"minimum=0,maximum=255" unit:"none"`
	// Ends lists the routing daemons that the command must end. The run fails if one of them has not
	// ended, and if a daemon ends that no step names. Default none.
	Ends []string `yaml:"ends,omitempty" json:"ends,omitempty"`
}

// LinkChange changes a link during the run. If no packet meets the change, a run that would pass is
// INCONCLUSIVE, because it did not test the change.
type LinkChange struct {
	// Where is a link's name or glob, such as "leaf1--spine2", optionally followed by " a-to-b" or
	// " b-to-a".
	Where string `yaml:"where" json:"where" names:"link"`
	// State takes the link, or one direction of it, up or down. A direction that is down loses packets,
	// and both ends keep their carrier. State up of the whole link also restores its directions.
	// Default: as it was.
	State string `yaml:"state,omitempty" json:"state,omitempty" jsonschema:"enum=up,enum=down"`
	// Set overrides settings of the link. Default: no settings change.
	Set *Direction `yaml:"set,omitempty" json:"set,omitempty"`
	// For is the time after which the change is undone. Default: never.
	For units.Duration `yaml:"for,omitempty" json:"for,omitempty"`
}

// Check is a condition that must hold. Exactly one of the fields is set.
type Check struct {
	// Workload judges a workload's own results.
	Workload *WorkloadCheck `yaml:"workload,omitempty" json:"workload,omitempty"`
	// Packets judges the captured packets.
	Packets *PacketsCheck `yaml:"packets,omitempty" json:"packets,omitempty"`
	// Why judges the causes that railbed why finds for slow messages. Default: not judged.
	Why *WhyCheck `yaml:"why,omitempty" json:"why,omitempty"`
	// Fidelity is the worst verdict that passes: faithful or degraded.
	Fidelity string `yaml:"fidelity,omitempty" json:"fidelity,omitempty" jsonschema:"enum=faithful,enum=degraded"`
}
