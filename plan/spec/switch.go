package spec

import "railbed/internal/units"

// Switch kinds.
const (
	Router = "router"
	Bridge = "bridge"
	Soft   = "soft"
)

// DefaultSwitchKind is the kind of switches of which the file says none.
const DefaultSwitchKind = Soft

// How a soft switch forwards.
const (
	L3 = "l3"
	L2 = "l2"
)

// How a soft switch chooses among paths of equal cost.
const (
	Flow       = "flow"
	Polarised  = "polarised"
	Flowlet    = "flowlet"
	Spray      = "spray"
	RoundRobin = "round-robin"
	LeastQueue = "least-queue"
)

// How a soft switch decides what to mark.
const (
	RED      = "red"
	ECNSharp = "ecn-sharp"
)

// What Gentle Flow Control tells the sender about.
const (
	GFCBuffer = "buffer"
	GFCTime   = "time"
)

// Priorities is the number of a port's queues; priority 7 is the highest.
const Priorities = 8

// Switch is the settings of one switch or of all. All but Kind and Buffer are
// of soft switches only.
type Switch struct {
	// Kind is soft (default), our own switch, which has every setting here and
	// needs no kernel module; router, the kernel's, which forwards by address
	// over equal-cost paths and carries the most traffic; or bridge, the
	// kernel's, which needs a fabric without loops. All switches of a fabric are
	// of one kind.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=soft,enum=router,enum=bridge"`
	// Buffer is the egress queue of each port of a router or bridge, default
	// 256KiB, and the packet buffer that all ports of a soft switch share,
	// default 2MB.
	Buffer units.Bytes `yaml:"buffer,omitempty" json:"buffer,omitempty"`
	// Forwarding is l3 (default), which routes as a router does, or l2, which
	// learns addresses as a bridge does and needs a fabric without loops.
	Forwarding string `yaml:"forwarding,omitempty" json:"forwarding,omitempty" jsonschema:"enum=l3,enum=l2"`
	// LoadBalance chooses among equal-cost paths: flow (default), a hash of the
	// 5-tuple with a seed for each switch; polarised, that hash with one seed
	// for all, so that switches in a row choose alike; flowlet, the flow's path
	// until it pauses for longer than FlowletGap; and for each packet spray, at
	// random, round-robin, or least-queue, the port with the fewest bytes.
	LoadBalance string `yaml:"load-balance,omitempty" json:"load-balance,omitempty" jsonschema:"enum=flow,enum=polarised,enum=flowlet,enum=spray,enum=round-robin,enum=least-queue"`
	// FlowletGap is the pause after which a flow may take another path, for
	// load-balance: flowlet. Default 50us.
	FlowletGap units.Duration `yaml:"flowlet-gap,omitempty" json:"flowlet-gap,omitempty"`
	// Alpha is the factor of the dynamic threshold: a queue may hold this many
	// times what is free of the shared buffer (Choudhury and Hahne, Dynamic
	// Queue Length Thresholds for Shared-Memory Packet Switches, IEEE/ACM
	// Transactions on Networking 6(2), 1998). Default 1.
	Alpha units.Factor `yaml:"alpha,omitempty" json:"alpha,omitzero"`
	// Scheduler says in which order the queues of a port are served.
	Scheduler *Scheduler `yaml:"scheduler,omitempty" json:"scheduler,omitempty"`
	// Priorities maps a DSCP, 0 to 63, to the priority of its packets, 0 to 7.
	// Other DSCPs have the priority of their three high bits, DSCP/8. A frame with a
	// priority tag, of VLAN 0, has the tag's priority instead.
	Priorities Ordered[int] `yaml:"priorities,omitempty" json:"priorities,omitempty"`
	// ECN marks packets of flows that can be told about congestion. Default off.
	ECN *ECN `yaml:"ecn,omitempty" json:"ecn,omitempty"`
	// Trim cuts packets that would be dropped down to their headers. Default
	// off.
	Trim *Trim `yaml:"trim,omitempty" json:"trim,omitempty"`
	// PFC pauses the sender of a priority before its buffer overflows. Default
	// off.
	PFC *PFC `yaml:"pfc,omitempty" json:"pfc,omitempty"`
	// GFC slows the sender of a priority before its buffer overflows. Default
	// off.
	GFC *GFC `yaml:"gfc,omitempty" json:"gfc,omitempty"`
	// INT writes telemetry of each hop into packets that reserve room for it.
	// Default false.
	INT *bool `yaml:"int,omitempty" json:"int,omitempty"`
	// Aggregation adds up what workers send to the switch. Default off.
	Aggregation *Aggregation `yaml:"aggregation,omitempty" json:"aggregation,omitempty"`
}

// Scheduler says in which order the queues of a port are served: strict ones
// first, and the others by deficit weighted round robin (Shreedhar and
// Varghese, Efficient Fair Queuing using Deficit Round Robin, SIGCOMM 1995).
type Scheduler struct {
	// Strict are the priorities that are served first, in this order. Default
	// [7].
	Strict []int `yaml:"strict,omitempty" json:"strict,omitempty"`
	// Weights are of the other priorities, 1 to 1,000. Default 1 for each.
	Weights Ordered[int] `yaml:"weights,omitempty" json:"weights,omitempty"`

	// Zero names the fields that are empty on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// ECN marks packets of ECN-capable flows with Congestion Experienced (RFC
// 3168); others are left alone, and neither kind drops by itself.
type ECN struct {
	// Kind is red (default) or ecn-sharp.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=red,enum=ecn-sharp"`
	// KMin is the queue length up to which red marks nothing. Default 40KB.
	KMin units.Bytes `yaml:"kmin,omitempty" json:"kmin,omitempty"`
	// KMax is the queue length above which red marks everything. Default 160KB.
	KMax units.Bytes `yaml:"kmax,omitempty" json:"kmax,omitempty"`
	// PMax is the share of packets that red marks at KMax; from KMin the share
	// grows in proportion (Zhu et al., Congestion Control for Large-Scale RDMA
	// Deployments, SIGCOMM 2015, figure 5). Default 20%.
	PMax units.Ratio `yaml:"pmax,omitempty" json:"pmax,omitzero"`
	// Target is the time in the queue above which ecn-sharp marks every packet,
	// ins_target (Zhang et al., Enabling ECN for Datacenter Networks with RTT
	// Variations, CoNEXT 2019): what a large round-trip time calls for. Default
	// 200us.
	Target units.Duration `yaml:"target,omitempty" json:"target,omitempty"`
	// PersistentTarget is the time in the queue that ecn-sharp lets stand only
	// for an Interval, pst_target: what a small round-trip time calls for.
	// Default 85us.
	PersistentTarget units.Duration `yaml:"persistent-target,omitempty" json:"persistent-target,omitempty"`
	// Interval is how long packets may stay longer than PersistentTarget before
	// ecn-sharp marks one, pst_interval, the largest round-trip time; the n-th
	// mark in a row follows after Interval/sqrt(n). Default 200us.
	Interval units.Duration `yaml:"interval,omitempty" json:"interval,omitempty"`
	// Priorities are those that are marked. Default all.
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty"`

	// Off says "ecn: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Trim cuts a packet that its queue has no room for, gives it another DSCP and
// sends its head ahead of what waits (Handley et al., Re-architecting
// datacenter networks and stacks for low latency and high performance, SIGCOMM
// 2017).
type Trim struct {
	// Size is what is left of a trimmed frame, from its Ethernet header on: at
	// least 64B. Default 128B, which has room for IPv6 and a transport's header.
	// More is left where headers are longer: of rd's data the whole header and any
	// telemetry before it.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// DSCP is what trimmed packets carry. Default 59, and it has to be of the
	// priority that Queue names.
	DSCP *int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63"`
	// Queue is the priority of trimmed packets. Default 7.
	Queue *int `yaml:"queue,omitempty" json:"queue,omitempty" jsonschema:"minimum=0,maximum=7"`
	// Priorities are those whose packets are trimmed. Default: that of rd's data
	// (DSCP 35), because a trimmed packet of a stack that knows nothing of it,
	// such as RoCE, is a broken one.
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty"`

	// Off says "trim: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// PFC is priority-based flow control (IEEE 802.1Qbb, now 802.1Q clause 36): a
// port whose buffer fills pauses the sender at the other end, per priority.
// Lengths are of what came in by one port at one priority and still waits; the
// plan computes those that the file leaves out, for each port, and they follow a
// link whose rate or delay is changed while it runs.
type PFC struct {
	// Priorities are lossless. Default [3].
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty"`
	// XOff is the length above which the sender is paused.
	XOff *units.Bytes `yaml:"xoff,omitempty" json:"xoff,omitempty"`
	// XOn is the length at or below which it goes on.
	XOn *units.Bytes `yaml:"xon,omitempty" json:"xon,omitempty"`
	// Headroom is what may arrive beyond XOff: what was on the way when the
	// pause was sent.
	Headroom *units.Bytes `yaml:"headroom,omitempty" json:"headroom,omitempty"`
	// Quanta is how long a pause holds without another one, in times of 512
	// bits. Default 65535, the longest.
	Quanta int `yaml:"quanta,omitempty" json:"quanta,omitempty" jsonschema:"minimum=1,maximum=65535"`

	// Off says "pfc: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// GFC is Gentle Flow Control (Qian et al., Gentle Flow Control: Avoiding
// Deadlock in Lossless Networks, SIGCOMM 2019): a port whose buffer fills slows
// the sender at the other end and never stops it, so that no cycle of ports
// deadlocks. Lengths are as PFC's, and follow the link in the same way.
type GFC struct {
	// Kind is buffer (default), which tells the sender a stage whenever the
	// length crosses that stage's threshold, or time, which tells it a rate
	// every Period.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=buffer,enum=time"`
	// Priorities are lossless. Default [3].
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty"`
	// B1 is the length at which the sender is first slowed: the paper's B1 of
	// buffer, and its B0 of time.
	B1 *units.Bytes `yaml:"b1,omitempty" json:"b1,omitempty"`
	// BM is the length that is never reached: the paper's Bm.
	BM *units.Bytes `yaml:"bm,omitempty" json:"bm,omitempty"`
	// Stages is how often buffer halves the rate. Default: until it is below
	// 8kbit, the step of hardware's rate limiters.
	Stages int `yaml:"stages,omitempty" json:"stages,omitempty" jsonschema:"minimum=1,maximum=40"`
	// Period is the time between two messages of time. Default: that of 65,535
	// bytes at the link's rate, as InfiniBand's credits.
	Period units.Duration `yaml:"period,omitempty" json:"period,omitempty"`

	// Off says "gfc: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Aggregation adds up vectors that the ranks below the switch send to it, or to switches
// between that have it, too, and send partial sums up, and answers with the sum (Sapio et al.,
// Scaling Distributed Machine Learning with In-Network Aggregation, NSDI 2021).
type Aggregation struct {
	// Slots is how many sums of a collective the switch holds at a time; of switches that add up
	// together the fewest count, as of elements. Default 128.
	Slots int `yaml:"slots,omitempty" json:"slots,omitempty" jsonschema:"minimum=1,maximum=65536"`
	// Elements is how many values of 4 bytes a slot holds. Default 256.
	Elements int `yaml:"elements,omitempty" json:"elements,omitempty" jsonschema:"minimum=1,maximum=2048"`
	// Timeout is how long a sum waits for a worker before the job is over, until
	// its workers begin anew. Default 1s.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// Off says "aggregation: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}
