package spec

import "railbed/internal/units"

// Kinds of switches.
const (
	Router = "router"
	Bridge = "bridge"
	Soft   = "soft"
)

// Paths of packets from programs of a node to its NIC.
const (
	KernelPath = "kernel"
	Bypass     = "bypass"
)

// DefaultSwitchKind is the kind of a switch for which the file gives none.
const DefaultSwitchKind = Soft

// Ways in which a soft switch forwards.
const (
	L3 = "l3"
	L2 = "l2"
)

// Ways in which a soft switch chooses among paths of equal cost.
const (
	Flow       = "flow"
	Polarised  = "polarised"
	Flowlet    = "flowlet"
	Spray      = "spray"
	RoundRobin = "round-robin"
	LeastQueue = "least-queue"
)

// Ways in which a soft switch decides which packets to mark.
const (
	RED      = "red"
	ECNSharp = "ecn-sharp"
)

// Kinds of Gentle Flow Control, by the event that notifies the sender.
const (
	GFCBuffer = "buffer"
	GFCTime   = "time"
)

// Priorities is the number of a port's queues; priority 7 is the highest.
const Priorities = 8

// Switch is the settings of one switch or of all switches. Only soft switches have settings other
// than kind and buffer.
type Switch struct {
	// Kind is the kind of switch. All switches of a fabric are of one kind.
	//
	//   - soft (default): Railbed's own switch. It has every setting here and needs no kernel
	//     module.
	//   - router: the kernel's routing, by address over equal-cost paths. It carries the most
	//     traffic.
	//   - bridge: the kernel's bridge, which needs a fabric without loops.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=soft,enum=router,enum=bridge"`
	// Buffer is the size of the packet buffer that all ports of a soft switch share. Of a router or
	// bridge it is the size of the egress queue of each port. Default: 2MB for a soft switch, 256KiB
	// for the others.
	Buffer units.Bytes `yaml:"buffer,omitempty" json:"buffer,omitempty"`
	// Forwarding is l3 (default), which routes as a router does, or l2, which forwards as a
	// learning bridge does and needs a fabric without loops.
	Forwarding string `yaml:"forwarding,omitempty" json:"forwarding,omitempty" jsonschema:"enum=l3,enum=l2"`
	// LoadBalance chooses among equal-cost paths.
	//
	//   - flow (default): by a hash of the 5-tuple, with a different seed in each switch.
	//   - polarised: by the same hash with one seed for all switches, so that consecutive switches
	//     choose alike.
	//   - flowlet: the flow's path until the flow pauses for longer than flowlet-gap.
	//   - spray: at random for each packet.
	//   - round-robin: in turn for each packet.
	//   - least-queue: for each packet the port with the fewest bytes.
	LoadBalance string `yaml:"load-balance,omitempty" json:"load-balance,omitempty" jsonschema:"enum=flow,enum=polarised,enum=flowlet,enum=spray,enum=round-robin,enum=least-queue"`
	// FlowletGap is the pause after which a flow may take another path, for
	// load-balance: flowlet. Default 50us.
	FlowletGap units.Duration `yaml:"flowlet-gap,omitempty" json:"flowlet-gap,omitempty"`
	// Alpha is the factor of the dynamic threshold: a queue may hold this many times the free space
	// of the shared buffer. Default 1. Source: Choudhury and Hahne, Dynamic Queue Length Thresholds
	// for Shared-Memory Packet Switches, IEEE/ACM Transactions on Networking 6(2), 1998.
	Alpha units.Factor `yaml:"alpha,omitempty" json:"alpha,omitzero" unit:"none"`
	// Scheduler sets the order in which the queues of a port are served. Default: priority 7 first,
	// then the others by equal weights.
	Scheduler *Scheduler `yaml:"scheduler,omitempty" json:"scheduler,omitempty"`
	// Priorities maps a DSCP, 0 to 63, to the priority of its packets, 0 to 7. Other DSCPs have the
	// priority of their three high bits, DSCP/8. A frame with a priority tag (VLAN 0) has the tag's
	// priority instead. Default: DSCP/8 for all.
	Priorities Ordered[int] `yaml:"priorities,omitempty" json:"priorities,omitempty" unit:"none"`
	// ECN marks packets of ECN-capable flows in case of congestion. Default off.
	ECN *ECN `yaml:"ecn,omitempty" json:"ecn,omitempty"`
	// Trim cuts packets to their headers that would otherwise be dropped. Default off.
	Trim *Trim `yaml:"trim,omitempty" json:"trim,omitempty"`
	// PFC pauses the sender of a priority before its buffer overflows. Default
	// off.
	PFC *PFC `yaml:"pfc,omitempty" json:"pfc,omitempty"`
	// GFC slows the sender of a priority before its buffer overflows. Default
	// off.
	GFC *GFC `yaml:"gfc,omitempty" json:"gfc,omitempty"`
	// INT writes telemetry of each hop into packets that reserve room for it. Default false.
	INT *bool `yaml:"int,omitempty" json:"int,omitempty"`
	// Aggregation adds up the vectors that workers send to the switch, and replies with the sum. Default off.
	Aggregation *Aggregation `yaml:"aggregation,omitempty" json:"aggregation,omitempty"`
}

// Scheduler sets the order in which the queues of a port are served. Strict priorities come first,
// then the others by deficit weighted round robin (Shreedhar and Varghese, Efficient Fair Queuing
// using Deficit Round Robin, SIGCOMM 1995).
type Scheduler struct {
	// Strict lists the priorities that are served first, in this order. Default [7].
	Strict []int `yaml:"strict,omitempty" json:"strict,omitempty" unit:"none"`
	// Weights are the weights of the other priorities, 1 to 1,000. Default 1 for each.
	Weights Ordered[int] `yaml:"weights,omitempty" json:"weights,omitempty" unit:"none"`

	// Zero marks the fields that are empty on purpose.
	Zero Zeros `yaml:"-" json:"zero,omitempty"`
}

// ECN marks packets of ECN-capable flows with Congestion Experienced (RFC 3168). It changes no other
// packets and drops none.
type ECN struct {
	// Kind is red (default) or ecn-sharp.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=red,enum=ecn-sharp"`
	// KMin is the queue length up to which red marks nothing. Default 40KB.
	KMin units.Bytes `yaml:"kmin,omitempty" json:"kmin,omitempty"`
	// KMax is the queue length above which red marks every packet. Default 160KB.
	KMax units.Bytes `yaml:"kmax,omitempty" json:"kmax,omitempty"`
	// PMax is the share of packets that red marks at kmax. From kmin on the share grows in
	// proportion. Default 20%. Source: Zhu et al., Congestion Control for Large-Scale RDMA
	// Deployments, SIGCOMM 2015, figure 5.
	PMax units.Ratio `yaml:"pmax,omitempty" json:"pmax,omitzero"`
	// Target is the time in the queue above which ecn-sharp marks every packet. It is ins_target of
	// Zhang et al., Enabling ECN for Datacenter Networks with RTT Variations, CoNEXT 2019, and
	// suits a large round-trip time. Default 200us.
	Target units.Duration `yaml:"target,omitempty" json:"target,omitempty"`
	// PersistentTarget is the time in the queue that ecn-sharp tolerates for one interval only
	// (pst_target). It suits a small round-trip time. Default 85us.
	PersistentTarget units.Duration `yaml:"persistent-target,omitempty" json:"persistent-target,omitempty"`
	// Interval is the time for which packets may wait longer than persistent-target before
	// ecn-sharp marks a packet (pst_interval, the largest round-trip time). The n-th consecutive
	// mark follows after interval/sqrt(n). Default 200us.
	Interval units.Duration `yaml:"interval,omitempty" json:"interval,omitempty"`
	// Priorities lists the priorities whose packets are marked. Default all.
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty" unit:"none"`

	// Off is true for "ecn: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Trim cuts packets. A packet for which its queue has no room gets another DSCP, and its head is sent
// before the waiting packets. Source: Handley et al., Re-architecting datacenter networks and stacks for
// low latency and high performance, SIGCOMM 2017.
type Trim struct {
	// Size is the length of a trimmed frame from its Ethernet header on, at least 64B. Default
	// 128B, which has room for IPv6 and a transport's header. Packets with longer headers keep
	// more: rd's data keeps its whole header and any telemetry before it.
	Size units.Bytes `yaml:"size,omitempty" json:"size,omitempty"`
	// DSCP is the DSCP of trimmed packets. Its priority must be the value of queue. Default 59.
	DSCP *int `yaml:"dscp,omitempty" json:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" unit:"none"`
	// Queue is the priority of trimmed packets. Default 7.
	Queue *int `yaml:"queue,omitempty" json:"queue,omitempty" jsonschema:"minimum=0,maximum=7" unit:"none"`
	// Priorities lists the priorities whose packets are trimmed. Default: the priority of rd's data
	// (DSCP 35). A stack without support for trimming, such as RoCE, takes a trimmed packet for a
	// broken one.
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty" unit:"none"`

	// Off is true for "trim: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// PFC is priority-based flow control. A port whose buffer fills pauses the sender at the other end, per
// priority. Source: IEEE 802.1Qbb, now 802.1Q clause 36.
//
// Lengths count the bytes that came in by one port at one priority and still wait. The plan
// computes the lengths that the file omits, for each port. They are computed again when the rate or
// delay of a link changes during the run.
type PFC struct {
	// Priorities lists the lossless priorities. Default [3].
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty" unit:"none"`
	// XOff is the length above which the sender is paused. Default: computed for each port, and above
	// the length at which ecn marks every packet of the priority, as far as half of the buffer allows.
	XOff *units.Bytes `yaml:"xoff,omitempty" json:"xoff,omitempty"`
	// XOn is the length at or below which the sender continues. Default: computed for each port.
	XOn *units.Bytes `yaml:"xon,omitempty" json:"xon,omitempty"`
	// Headroom is the number of bytes that may arrive beyond xoff, because they were on the way when
	// the pause was sent. Default: computed for each port.
	Headroom *units.Bytes `yaml:"headroom,omitempty" json:"headroom,omitempty"`
	// Quanta is the duration of a pause that is not renewed, in units of 512 bit times. Default
	// 65535, the maximum.
	Quanta int `yaml:"quanta,omitempty" json:"quanta,omitempty" jsonschema:"minimum=1,maximum=65535" unit:"512 bit times"`

	// Off is true for "pfc: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// GFC is Gentle Flow Control. A port whose buffer fills slows the sender at the other end and never stops
// it, so no cycle of ports deadlocks. Lengths count the same bytes as for PFC and are computed again in
// the same cases. Source: Qian et al., Gentle Flow Control: Avoiding Deadlock in Lossless Networks,
// SIGCOMM 2019.
type GFC struct {
	// Kind is buffer (default), which sends the sender a stage whenever the length crosses the
	// threshold of that stage, or time, which sends it a rate every period.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty" jsonschema:"enum=buffer,enum=time"`
	// Priorities lists the lossless priorities. Default [3].
	Priorities []int `yaml:"priorities,omitempty" json:"priorities,omitempty" unit:"none"`
	// B1 is the length at which the sender is first slowed: for buffer the paper's B1, for time its B0.
	// Default: computed for each port.
	B1 *units.Bytes `yaml:"b1,omitempty" json:"b1,omitempty"`
	// BM is the length that is never reached, the paper's Bm. Default: computed for each port.
	BM *units.Bytes `yaml:"bm,omitempty" json:"bm,omitempty"`
	// Stages is the number of times that kind: buffer halves the rate. Default: until the rate is
	// below 8kbit, the step of hardware rate limiters.
	Stages int `yaml:"stages,omitempty" json:"stages,omitempty" jsonschema:"minimum=1,maximum=40" unit:"halvings"`
	// Period is the time between two messages of kind: time. Default: the time of 65,535 bytes at
	// the link's rate, as for InfiniBand's credits.
	Period units.Duration `yaml:"period,omitempty" json:"period,omitempty"`

	// Off is true for "gfc: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}

// Aggregation adds up vectors from the ranks below the switch and replies with the sum. Switches
// with aggregation between the ranks and this switch send it partial sums. Source: Sapio et al.,
// Scaling Distributed Machine Learning with In-Network Aggregation, NSDI 2021.
type Aggregation struct {
	// Slots is the number of sums of a collective that the switch holds at a time. Among switches
	// that add up together the smallest number applies, and likewise for elements. A rank that
	// bypasses its kernel keeps memory for two results of each slot, at most 256 MiB. Default 128.
	Slots int `yaml:"slots,omitempty" json:"slots,omitempty" jsonschema:"minimum=1,maximum=65536" unit:"sums"`
	// Elements is the number of 4-byte values of a slot. Default 256.
	Elements int `yaml:"elements,omitempty" json:"elements,omitempty" jsonschema:"minimum=1,maximum=2048" unit:"values of 4 bytes"`
	// Timeout is the time for which a sum waits for a worker. After it the job is over until its
	// workers begin again. Default 1s.
	Timeout units.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`

	// Off is true for "aggregation: false".
	Off bool `yaml:"-" json:"off,omitempty"`
}
