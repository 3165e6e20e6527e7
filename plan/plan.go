// Package plan compiles a spec into a plan: the nodes, NICs, links, addresses, routes, queues and
// ranks of a testbed.
//
// The compiler is pure. It makes no system call and reads no clock. Its only source of randomness
// is the spec's seed. The same spec gives the same plan, byte for byte as JSON. Code that applies a
// plan makes no decisions of its own.
//
// # Routers
//
// Every link is a subnet of its own (/31 and /127). Its two ends have permanent neighbour entries
// for each other. Each node and router has a loopback (/32 and /128). A node's name resolves to its
// loopback, and packets that a node or router originates without a bound address have it as their
// source. Loopbacks of nodes on the same switches form one aligned block, and so do the subnets of
// one switch's nodes. A switch therefore has routes to other switches, and routes to single nodes
// only for its own nodes. All shortest paths are used, with equal weights. Nodes never forward.
//
// A node has a routing table and a source rule for each NIC. Packets that are bound to a NIC's
// address leave by that NIC. The main table of the node spreads unbound traffic over all NICs,
// except for destinations that are nearer over some of them.
//
// Every node must reach every other node's loopback, or Compile refuses the file. The address of a
// NIC is reached only over that NIC. If rails have no spines, a NIC reaches only its own rail. In
// an hpn fabric a NIC reaches only its own plane. A rail there has a loopback, which both of its NICs
// reach, and a table and a source rule. Compile refuses a workload whose ring needs more.
//
// # Bridges
//
// Nodes on one tree of bridges share a subnet and have no loopback. A name resolves to the address
// of the first NIC in the network that all nodes share. Up to 16 NICs have permanent neighbour
// entries for each other. If there are more, a node gets a permanent entry when it first sends to
// the neighbour; virtual machines and containers of another runtime use ARP and neighbour
// discovery. Bridges and routers cannot be mixed.
//
// # Soft switches
//
// A soft switch has the addresses, neighbours and routes of a router, or those of a bridge if it
// forwards by l2. Kinds cannot be mixed. Switch.Soft has the other settings of a soft switch. The
// Interface of a port has the thresholds that depend on its link. The link's Direction has its
// faults.
//
// Packets have one of eight priorities by their DSCP: its three high bits unless the file gives
// another priority. Railbed's own packets have DSCPs for local use:
//
//	priority  DSCP  what
//	0         0     everything without a priority of its own, such as TCP
//	3         26    RoCE as it is usually set up, lossless where pfc or gfc is on
//	4         35    rd's data, trimmed where trim is on (spec.DSCPRd)
//	6         48    RoCE's congestion notifications, as usually set up
//	6         51    rd's acknowledgements (spec.DSCPRdControl)
//	7         59    trimmed packets (spec.DSCPTrimmed)
package plan

import (
	"fmt"
	"net/netip"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// Plan is a compiled testbed. It leaves no decision open.
type Plan struct {
	Name     string `json:"name"`
	Seed     uint64 `json:"seed"`
	Dilation uint64 `json:"dilation"`
	// Nodes, Switches and Links are in the order in which the generator or the file named them. All
	// names in Nodes and Switches are distinct.
	Nodes    []Node   `json:"nodes"`
	Switches []Switch `json:"switches"`
	Links    []Link   `json:"links"`
	// Ranks are numbered 0..n-1, by node and then by rank of the node.
	Ranks []Rank `json:"ranks"`
	// Hosts is the hosts file of every node. It maps names of nodes and switches to loopback addresses
	// or, in a shared subnet, to NIC addresses. Then it maps the names of NICs, such as h1-eth0, to
	// their addresses.
	Hosts []HostEntry `json:"hosts"`
	// PacketMemory is the memory for all packets in soft switches, links and emulated NICs
	// together. It is 0 if no switch is soft.
	PacketMemory units.Bytes `json:"packet_memory,omitempty"`
	// Management is the management network, or nil if there is none.
	Management *Management `json:"management,omitempty"`
	// Containers maps nodes to the positions in the file, as file:line:column, of the settings that
	// give their containers' contents.
	Containers map[string]string `json:"containers,omitempty"`
	// Sysctls maps keys of SysctlKey to the positions in the file of nodes' sysctls.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Harmed lists the ports of kernel links and switches at which faults of the file act.
	Harmed []End `json:"harmed,omitempty"`
	// Requires lists the host features that the plan needs, by the names that doctor uses ("netem",
	// ...), with the reason.
	Requires []Requirement `json:"requires,omitempty"`
}

// HostEntry is one line of the nodes' hosts file.
type HostEntry struct {
	Addr netip.Addr `json:"addr"`
	Name string     `json:"name"`
}

// Requirement is a host feature and the position in the file of the setting that needs it.
type Requirement struct {
	Feature string `json:"feature"`
	Reason  string `json:"reason"`
	Where   string `json:"where,omitempty"` // file:line:column
	// Inside is set for a program that only containers run: the files of the host do not count.
	Inside bool `json:"inside,omitempty"`
}

// MAC is a hardware address. Its text form is 02:00:00:00:00:01.
type MAC [6]byte

// Interface is a NIC of a node or a port of a switch.
type Interface struct {
	Name string `json:"name"` // eth0, ... on nodes and p0, ... on switches unless the file gives names
	MAC  MAC    `json:"mac"`
	MTU  int    `json:"mtu"`
	// Link is the link's name. Peer is the other end, as "node:port".
	Link string `json:"link"`
	Peer string `json:"peer"`
	// Addrs holds the interface's addresses with their subnet, IPv4 first. Bridge ports have none.
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	// Neighbors holds the permanent neighbour entries. If a NIC with addresses has none, they are
	// made when they are needed.
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// RDMA is the RDMA device of a node's NIC, or nil.
	RDMA *RDMADevice `json:"rdma,omitempty"`
	// INTRoom is the part of the MTU of a node's NIC, in bytes, that workloads leave free in each
	// packet for the telemetry of switches.
	INTRoom int `json:"int_room,omitempty"`
	// PFC and GFC are the thresholds at which a port of a soft switch notifies its peer.
	PFC *PortPFC `json:"pfc,omitempty"`
	GFC *PortGFC `json:"gfc,omitempty"`
}

// RDMADevice is the RDMA device of a NIC.
type RDMADevice struct {
	Kind string `json:"kind"` // spec.RXE
	Name string `json:"name"` // the name that ibv_devices(1) shows
	// PathMTU is the largest payload of a packet, in bytes: the largest MTU of InfiniBand that fits
	// the NIC's MTU together with the headers.
	PathMTU int `json:"path_mtu"`
}

// Neighbor is a permanent neighbour entry.
type Neighbor struct {
	Addr netip.Addr `json:"addr"`
	MAC  MAC        `json:"mac"`
}

// Node is a server.
type Node struct {
	Name      string         `json:"name"`
	Runtime   string         `json:"runtime"`
	MachineID string         `json:"machine_id"` // 32 hex digits, distinct per node
	Loopbacks []netip.Prefix `json:"loopbacks,omitempty"`
	NICs      []Interface    `json:"nics"`
	// Rails are the rails of a node in a dual-ToR fabric, each of which has two NICs.
	Rails []Rail `json:"rails,omitempty"`
	// Routes holds the main table, one table per NIC, and one per rail with an address of its own. Rules
	// select a table by source address.
	Routes []Route `json:"routes,omitempty"`
	Rules  []Rule  `json:"rules,omitempty"`
	// Sysctls holds the sysctls of the file. They are set in addition to the sysctls of every node.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// RDMA is the kind of device that each NIC has: spec.RXE, or "" for none.
	RDMA string `json:"rdma,omitempty"`
	// Modules are loaded into the kernel of a vm. They include the modules of its RDMA devices.
	Modules []string `json:"modules,omitempty"`
	// Container is the container of a node with spec.Docker. Its paths are relative to the file.
	Container *spec.Container `json:"container,omitempty"`
	CPU       float64         `json:"cpu,omitempty"`
	// Slowed is set if a fault of the file limits the node's processor time for a while, and no engine does.
	Slowed bool        `json:"slowed,omitempty"`
	Memory units.Bytes `json:"memory,omitempty"`
	// Squeezed is set if the host limits the node's memory for a while, for a fault of the file.
	Squeezed bool `json:"squeezed,omitempty"`
	// Management is the node's management NIC, or nil.
	Management *ManagementNIC `json:"management,omitempty"`
	// NICQueue is the number of bytes that each of the eight priorities of a NIC can queue before
	// its link to a soft switch.
	NICQueue units.Bytes `json:"nic_queue,omitempty"`
	// Bypass is set if programs reach the NICs past the node's kernel.
	Bypass bool `json:"bypass,omitempty"`
	// Mirror is set if the interface MirrorName(i) in the node shows what programs exchange with NIC i past
	// the kernel.
	Mirror bool `json:"mirror,omitempty"`
}

// MirrorName returns the name of the interface that mirrors a NIC of a node, by the NIC's index.
func MirrorName(nic int) string { return fmt.Sprintf("mirror%d", nic) }

// Bypassing returns the number of nodes with Bypass.
func (p *Plan) Bypassing() (count int) {
	for i := range p.Nodes {
		if p.Nodes[i].Bypass {
			count++
		}
	}
	return count
}

// NICPath returns how programs reach the NICs, as the key nic-path has it.
func (n *Node) NICPath() string {
	if n.Bypass {
		return spec.Bypass
	}
	return spec.KernelPath
}

// Switch is a switch of the fabric.
type Switch struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // spec.Router, spec.Bridge, spec.Soft
	// ID numbers soft switches from 1, in the order of the plan. It is the switch ID of in-band
	// telemetry.
	ID uint32 `json:"id,omitempty"`
	// Forwarding of a soft switch is spec.L3 or spec.L2. With spec.L3 the switch has the Routes,
	// addresses and neighbours of a router. With spec.L2 it has none of them, like a bridge.
	Forwarding string `json:"forwarding,omitempty"`
	// Soft holds the other settings of a soft switch.
	Soft *SoftSwitch `json:"soft,omitempty"`
	// Tier counts from 0 at the servers' side. Group is the pod, rail or plane in which the
	// generator put the switch, for pictures.
	Tier  int    `json:"tier"`
	Role  string `json:"role"` // leaf, spine, tor, agg, core, switch
	Group string `json:"group,omitempty"`
	// At is the position of the switch in the grid of a torus, for pictures.
	At []int `json:"at,omitempty"`
	// HashSeed is the seed of the ECMP hash, if the host allows setting it.
	HashSeed uint32      `json:"hash_seed"`
	Ports    []Interface `json:"ports"`
	Routes   RouteTable  `json:"routes,omitzero"`
	// Loopbacks are the router's own addresses, for ICMP errors.
	Loopbacks []netip.Prefix `json:"loopbacks,omitempty"`
	// Routing configures the router's daemons. It is nil if the plan's routes are set.
	Routing *Routing `json:"routing,omitempty"`
}

// Route is a route. Several next hops are equal-cost paths with weights.
type Route struct {
	Dst      netip.Prefix `json:"dst"`             // 0.0.0.0/0 and ::/0 for default
	Table    int          `json:"table,omitempty"` // 0 for the main table
	Src      netip.Addr   `json:"src,omitzero"`
	NextHops []NextHop    `json:"next_hops"`
}

// NextHop is one path of a route. Without Via the destination is on the link.
type NextHop struct {
	Via    netip.Addr `json:"via,omitzero"`
	Dev    string     `json:"dev"`
	Weight int        `json:"weight,omitempty"` // default 1
}

// Rule is a policy routing rule: it selects a table for packets from a source.
type Rule struct {
	Priority int          `json:"priority"`
	From     netip.Prefix `json:"from"`
	Table    int          `json:"table"`
}

// End is one end of a link.
type End struct {
	Node string `json:"node"` // the name of a node or switch
	Port string `json:"port"`
}

// Direction is the behaviour of one direction of a link.
type Direction = spec.PlannedDirection

// GilbertElliott and Flap are values of settings of a Direction.
type (
	GilbertElliott = spec.PlannedBursts
	Flap           = spec.Flap
)

// Link joins two ports. Its two directions have settings of their own.
type Link struct {
	// Name is "a--b", or "a:port--b:port" if two devices share several links.
	Name  string `json:"name"`
	Class string `json:"class"` // host if one end is a node; fabric if both are switches
	A     End    `json:"a"`
	B     End    `json:"b"`
	MTU   int    `json:"mtu"` // bytes, without the Ethernet header
	// Weight is the link's relative weight among equal-cost paths, where 0 means 1. Routes have it in
	// their next hops.
	Weight int       `json:"weight,omitempty"`
	AToB   Direction `json:"a_to_b"`
	BToA   Direction `json:"b_to_a"`
}

// Rank is a rank of a workload and the NIC to which it is bound.
type Rank struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	NIC  string `json:"nic"`
	// SecondNIC is the other NIC of the rank's rail, by which its packets leave, too. It is "" if the rank
	// has one NIC.
	SecondNIC string     `json:"second_nic,omitempty"`
	Addr4     netip.Addr `json:"addr4"` // of the NIC, or of the rail (Rail)
	Addr6     netip.Addr `json:"addr6"`
	// Bypass is set if the rank's node has it (Node.Bypass).
	Bypass bool `json:"bypass,omitempty"`
}

// NICs returns the names of the rank's NICs, for people.
func (r *Rank) NICs() string {
	if r.SecondNIC == "" {
		return r.NIC
	}
	return r.NIC + "," + r.SecondNIC
}
