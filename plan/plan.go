// Package plan decides everything that a testbed is: it compiles a spec into
// nodes, NICs, links, addresses, routes, queues and ranks.
//
// The compiler is pure. It makes no system call, reads no clock and no
// randomness but the spec's seed; the same spec gives the same plan, byte for
// byte as JSON. Whoever applies a plan decides nothing.
//
// # Routers
//
// Every link is a subnet of its own (/31 and /127), and the two ends know each
// other by permanent neighbour entries. Each node and router has a loopback
// (/32 and /128); a node's name resolves to it, and packets that a node or
// router sends unasked have it as their source. Loopbacks of nodes on the same
// switches are one aligned block, and so are the subnets of one switch's nodes,
// so that a switch has routes to switches and only to its own nodes besides.
// All shortest paths are used, with equal weights; nodes never forward.
//
// A node has a table and a source rule for each NIC: what is bound to a NIC's
// address leaves by that NIC. Its main table spreads unbound traffic over all
// NICs, but for destinations that are nearer over some of them.
//
// Every node reaches every other one's loopback; else the file is refused. The
// address of a NIC is reached only over that NIC. So where rails have no spines,
// and between the planes of an hpn fabric, a NIC reaches its own rail or plane
// and no other: a workload whose ring needs more is refused.
//
// # Bridges
//
// Nodes on one tree of bridges share a subnet and have no loopback; a name
// resolves to the address of the first NIC in the network that all nodes share.
// Up to 256 NICs know each other by permanent entries, more by ARP and neighbour
// discovery. Bridges and routers do not mix.
//
// # Soft switches
//
// A soft switch has the addresses, neighbours and routes of a router, or of a
// bridge where it forwards by l2; kinds do not mix. What else it does is in
// Switch.Soft, thresholds that depend on a link in the Interface of its port,
// faults in the link's Direction.
//
// Packets have one of eight priorities by their DSCP, its three high bits where
// the file says nothing else. Our own packets have DSCPs for local use:
//
//	priority  DSCP  what
//	0         0     everything that asks for nothing, such as TCP
//	3         26    RoCE as it is usually set up, lossless where pfc or gfc is on
//	4         35    rd's data, trimmed where trim is on (spec.DSCPRd)
//	6         48    RoCE's congestion notifications, as usually set up
//	6         51    rd's acknowledgements (spec.DSCPRdControl)
//	7         59    trimmed packets (spec.DSCPTrimmed)
package plan

import (
	"net/netip"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// Plan is a whole testbed, decided.
type Plan struct {
	Name     string `json:"name"`
	Seed     uint64 `json:"seed"`
	Dilation uint64 `json:"dilation"`
	// Nodes, Switches and Links are in the order in which the generator or
	// the file named them; all names in Nodes and Switches are distinct.
	Nodes    []Node   `json:"nodes"`
	Switches []Switch `json:"switches"`
	Links    []Link   `json:"links"`
	// Ranks are numbered 0..n-1, by node and then by rank of the node.
	Ranks []Rank `json:"ranks"`
	// Hosts is the hosts file of every node: name to loopback addresses (or,
	// in a shared subnet, NIC addresses).
	Hosts []HostEntry `json:"hosts"`
	// PacketMemory is for all packets in soft switches, links and emulated NICs
	// together; 0 where no switch is soft.
	PacketMemory units.Bytes `json:"packet_memory,omitempty"`
	// Management is the network beside the fabric; nil is none.
	Management *Management `json:"management,omitempty"`
	// Containers are the places of the file, as file:line:column, that say what is in the
	// containers of nodes, by their names.
	Containers map[string]string `json:"containers,omitempty"`
	// Sysctls are the places that say those of nodes, by SysctlKey.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Requires are host features that the plan cannot do without, as doctor
	// names them ("netem", ...), with the reason.
	Requires []Requirement `json:"requires,omitempty"`
}

// HostEntry is one line of the nodes' hosts file.
type HostEntry struct {
	Addr netip.Addr `json:"addr"`
	Name string     `json:"name"`
}

// Requirement is a host feature and the place in the file that needs it.
type Requirement struct {
	Feature string `json:"feature"`
	Reason  string `json:"reason"`
	Where   string `json:"where,omitempty"` // file:line:column
}

// MAC is a hardware address that prints and parses as 02:00:00:00:00:01.
type MAC [6]byte

// Interface is a NIC of a node or a port of a switch.
type Interface struct {
	Name string `json:"name"` // eth0.. on nodes, p0.. on switches, unless the file says otherwise
	MAC  MAC    `json:"mac"`
	MTU  int    `json:"mtu"`
	// Link is the link's name; Peer is the other end, as "node:port".
	Link string `json:"link"`
	Peer string `json:"peer"`
	// Addrs are the interface's addresses with their subnet, IPv4 first. Bridge ports have none.
	Addrs []netip.Prefix `json:"addrs,omitempty"`
	// Neighbors are permanent neighbour entries.
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// RDMA is the RDMA device of a node's NIC, nil for none.
	RDMA *RDMADevice `json:"rdma,omitempty"`
	// INTRoom is the bytes of the MTU, of a node's NIC, that workloads leave
	// free in each packet for what switches write into it.
	INTRoom int `json:"int_room,omitempty"`
	// PFC and GFC are what a port of a soft switch tells its peer.
	PFC *PortPFC `json:"pfc,omitempty"`
	GFC *PortGFC `json:"gfc,omitempty"`
}

// RDMADevice is a NIC's device for verbs programs.
type RDMADevice struct {
	Kind string `json:"kind"` // spec.RXE
	Name string `json:"name"` // as ibv_devices(1) has it
	// PathMTU is the most payload of a packet, in bytes: the largest of InfiniBand's
	// that fits the NIC's MTU with its headers.
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
	// Routes hold the main table and one table per NIC; Rules select a NIC's
	// table by source address.
	Routes []Route `json:"routes,omitempty"`
	Rules  []Rule  `json:"rules,omitempty"`
	// Sysctls are those of the file, beside what every node has.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	// RDMA is the kind of device that each NIC has: spec.RXE, or "" for none.
	RDMA string `json:"rdma,omitempty"`
	// Modules are loaded into the kernel of a vm, those of its RDMA devices among them.
	Modules []string `json:"modules,omitempty"`
	// Container is what a node with spec.Docker runs; its paths are relative to the file.
	Container *spec.Container `json:"container,omitempty"`
	CPU       float64         `json:"cpu,omitempty"`
	Memory    units.Bytes     `json:"memory,omitempty"`
	// Management is the node's NIC beside the fabric; nil is none.
	Management *ManagementNIC `json:"management,omitempty"`
	// NICQueue is what each of the eight priorities of a NIC can queue before its
	// link to a soft switch.
	NICQueue units.Bytes `json:"nic_queue,omitempty"`
}

// Switch is a switch of the fabric.
type Switch struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // spec.Router, spec.Bridge, spec.Soft
	// ID numbers soft switches from 1, in the order of the plan: INT's switch.
	ID uint32 `json:"id,omitempty"`
	// Forwarding of a soft switch is spec.L3, for which Routes, addresses and
	// neighbours are those of a router, or spec.L2, for which they are those of
	// a bridge.
	Forwarding string `json:"forwarding,omitempty"`
	// Soft is the rest of a soft switch.
	Soft *SoftSwitch `json:"soft,omitempty"`
	// Tier counts from 0 at the servers' side; Group is the pod, rail or
	// plane that the generator put the switch in, for pictures.
	Tier  int    `json:"tier"`
	Role  string `json:"role"` // leaf, spine, tor, agg, core, switch
	Group string `json:"group,omitempty"`
	// At is the switch's place in the grid of a torus, for pictures.
	At []int `json:"at,omitempty"`
	// HashSeed seeds the ECMP hash where the host lets it be set.
	HashSeed uint32      `json:"hash_seed"`
	Ports    []Interface `json:"ports"`
	Routes   RouteTable  `json:"routes,omitzero"`
	// Loopbacks are the router's own addresses, for ICMP errors.
	Loopbacks []netip.Prefix `json:"loopbacks,omitempty"`
	// Routing is the router's daemons, nil where its routes are set.
	Routing *Routing `json:"routing,omitempty"`
}

// Route is a route; several next hops are equal-cost (by weight) paths.
type Route struct {
	Dst      netip.Prefix `json:"dst"`             // 0.0.0.0/0 and ::/0 for default
	Table    int          `json:"table,omitempty"` // 0 is the main table
	Src      netip.Addr   `json:"src,omitzero"`
	NextHops []NextHop    `json:"next_hops"`
}

// NextHop is one path of a route; without Via the destination is on the link.
type NextHop struct {
	Via    netip.Addr `json:"via,omitzero"`
	Dev    string     `json:"dev"`
	Weight int        `json:"weight,omitempty"` // default 1
}

// Rule is a policy routing rule: packets from a source look in a table.
type Rule struct {
	Priority int          `json:"priority"`
	From     netip.Prefix `json:"from"`
	Table    int          `json:"table"`
}

// End is one end of a link.
type End struct {
	Node string `json:"node"` // a node's or a switch's name
	Port string `json:"port"`
}

// Link is a point-to-point link.
type Link struct {
	// Name is "a--b", or "a:port--b:port" where two ends share several links.
	Name  string `json:"name"`
	Class string `json:"class"` // host: one end is a node; fabric: both are switches
	A     End    `json:"a"`
	B     End    `json:"b"`
	MTU   int    `json:"mtu"`
	// Weight is the share of traffic among equal-cost paths, 0 for 1; routes
	// have it in their next hops.
	Weight int       `json:"weight,omitempty"`
	AToB   Direction `json:"a_to_b"`
	BToA   Direction `json:"b_to_a"`
}

// Rank is a rank of a workload and the NIC that it is bound to.
type Rank struct {
	Rank  int        `json:"rank"`
	Node  string     `json:"node"`
	NIC   string     `json:"nic"`
	Addr4 netip.Addr `json:"addr4"` // of the NIC
	Addr6 netip.Addr `json:"addr6"`
}
