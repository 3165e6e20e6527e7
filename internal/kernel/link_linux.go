package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// MAC is a hardware address.
type MAC = [6]byte

// MACText prints a hardware address as 02:00:00:00:00:01.
func MACText(mac MAC) string { return net.HardwareAddr(mac[:]).String() }

// VethEnd describes one end of a veth pair before it exists.
type VethEnd struct {
	Namespace *Namespace
	Node      string // the namespace's name, for the trace
	Name      string
	// Index is the interface index of the end in its namespace. The caller chooses it, so that
	// requests for the interface can be encoded before it exists.
	Index int
	MAC   MAC
	MTU   int
	// MaxSegments is the largest number of packets that a stack may hand to the interface as one.
	// Turning segmentation offload off does not limit it: since Linux 4.17 TCP always hands over up
	// to 64 KiB. The kernel segments it after the queueing discipline. 0 is the kernel's default.
	MaxSegments int
}

// AddVeth creates a veth pair whose ends appear directly in their namespaces with their final name,
// address and MTU. It needs one request instead of four (create, move, rename, set), each of which
// takes the kernel's one configuration lock. Group is the interface group of both ends, by which
// DeleteGroup finds them.
//
// Both ends have one queue: the shaper serialises anyway, and kernels since 5.15 allocate one per
// possible CPU otherwise.
func (b *Batch) AddVeth(a, z VethEnd, group uint32) {
	b.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func() string {
		return fmt.Sprintf("ip -n %s link add %s index %d address %s mtu %d numtxqueues 1 numrxqueues 1%s "+
			"group %d type veth "+
			"peer %s netns %s index %d address %s mtu %d numtxqueues 1 numrxqueues 1%s group %d",
			a.Node, a.Name, a.Index, MACText(a.MAC), a.MTU, a.segmentsText(), group, z.Name, z.Node, z.Index,
			MACText(z.MAC), z.MTU, z.segmentsText(), group)
	})
	b.vethEnd(a, group)
	info := b.nest(unix.IFLA_LINKINFO)
	b.attrString(unix.IFLA_INFO_KIND, "veth")
	data := b.nest(unix.IFLA_INFO_DATA)
	peer := b.nest(nl.VETH_INFO_PEER)
	b.vethEnd(z, group)
	b.unnest(peer)
	b.unnest(data)
	b.unnest(info)
	b.end()
}

func (e VethEnd) segmentsText() string {
	if e.MaxSegments == 0 {
		return ""
	}
	return fmt.Sprintf(" gso_max_segs %d", e.MaxSegments)
}

// SetMaxSegments changes an interface's VethEnd.MaxSegments. An existing connection adopts it when
// it looks up its route again.
func (b *Batch) SetMaxSegments(name string, index, segments int) {
	b.begin(unix.RTM_NEWLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link set %s gso_max_segs %d", b.node, name, segments)
	})
	b.ifinfo(index, 0, 0)
	b.attrU32(unix.IFLA_GSO_MAX_SEGS, uint32(segments))
	b.end()
}

func (b *Batch) vethEnd(e VethEnd, group uint32) {
	b.ifinfo(e.Index, 0, 0)
	b.attrString(unix.IFLA_IFNAME, e.Name)
	b.attrBytes(unix.IFLA_ADDRESS, e.MAC[:])
	b.attrU32(unix.IFLA_MTU, uint32(e.MTU))
	b.attrU32(unix.IFLA_NUM_TX_QUEUES, 1)
	b.attrU32(unix.IFLA_NUM_RX_QUEUES, 1)
	if e.MaxSegments > 0 {
		b.attrU32(unix.IFLA_GSO_MAX_SEGS, uint32(e.MaxSegments))
	}
	b.attrU32(unix.IFLA_GROUP, group)
	b.attrU32(unix.IFLA_NET_NS_FD, uint32(e.Namespace.Fd()))
}

// ifinfo appends a struct ifinfomsg.
func (b *Batch) ifinfo(index int, flags, change uint32) {
	b.u8(unix.AF_UNSPEC, 0)
	b.u16(0) // hardware type
	b.u32(uint32(index))
	b.u32(flags)
	b.u32(change)
}

// AddBridge creates a bridge that forwards at once and never blocks a port. It has no spanning tree
// (the plan refuses loops) and no forward delay. It has no multicast snooping, which would drop
// groups without a querier.
func (b *Batch) AddBridge(name string, index int, group uint32) {
	b.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, func() string {
		return fmt.Sprintf("ip -n %s link add %s index %d group %d type bridge stp_state 0 forward_delay 0 "+
			"mcast_snooping 0", b.node, name, index, group)
	})
	b.ifinfo(index, 0, 0)
	b.attrString(unix.IFLA_IFNAME, name)
	b.attrU32(unix.IFLA_GROUP, group)
	b.linkInfo("bridge", b.bridgeData)
	b.end()
}

func (b *Batch) bridgeData() {
	b.attrU32(unix.IFLA_BR_STP_STATE, 0)
	b.attrU32(unix.IFLA_BR_FORWARD_DELAY, 0)
	b.attrU8(unix.IFLA_BR_MCAST_SNOOPING, 0)
}

// linkInfo appends the attributes for interfaces of one kind.
func (b *Batch) linkInfo(kind string, data func()) {
	info := b.nest(unix.IFLA_LINKINFO)
	b.attrString(unix.IFLA_INFO_KIND, kind)
	start := b.nest(unix.IFLA_INFO_DATA)
	data()
	b.unnest(start)
	b.unnest(info)
}

// SetUp sets an interface up or down.
func (b *Batch) SetUp(name string, index int, up bool) {
	word, flags := "down", uint32(0)
	if up {
		word, flags = "up", unix.IFF_UP
	}
	b.begin(unix.RTM_NEWLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link set %s %s", b.node, name, word)
	})
	b.ifinfo(index, flags, unix.IFF_UP)
	b.end()
}

// SetMasterUp makes an interface a port of a bridge and sets it up.
func (b *Batch) SetMasterUp(name string, index, master int, masterName string) {
	b.begin(unix.RTM_NEWLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link set %s master %s up", b.node, name, masterName)
	})
	b.ifinfo(index, unix.IFF_UP, unix.IFF_UP)
	b.attrU32(unix.IFLA_MASTER, uint32(master))
	b.end()
}

// SetQueueLength sets how many frames an interface's own queue holds; for a tap, these frames wait
// for its reader. In a user namespace the ioctl for it is refused.
func (b *Batch) SetQueueLength(name string, index, frames int) {
	b.begin(unix.RTM_NEWLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link set %s txqueuelen %d", b.node, name, frames)
	})
	b.ifinfo(index, 0, 0)
	b.attrU32(unix.IFLA_TXQLEN, uint32(frames))
	b.end()
}

// DeleteGroup deletes every interface of the group in the namespace, and the peer of each veth in
// any namespace. The kernel deletes them together; deleting them one by one would wait for all CPUs
// once for each.
func (b *Batch) DeleteGroup(group uint32) {
	b.begin(unix.RTM_DELLINK, 0, func() string {
		return fmt.Sprintf("ip -n %s link delete group %d", b.node, group)
	})
	b.ifinfo(0, 0, 0)
	b.attrU32(unix.IFLA_GROUP, group)
	b.end()
}

// Link is an interface as the kernel has it.
type Link struct {
	Name        string
	Index       int
	Kind        string // "veth", "bridge", "" for loopback
	MAC         MAC
	MTU         int
	Group       uint32
	Master      int // index of the bridge, or 0
	PeerIndex   int // of a veth: the peer's index in its namespace
	MaxSegments int
	Up          bool   // administratively
	Carrier     bool   // the other end is up too
	Operstate   string // "up", "down", "lowerlayerdown", ...
	// Downs counts how often the carrier went away since the interface was made (Linux 4.16 and later).
	Downs  uint64
	Bridge *BridgeState
	// Inet4 and Inet6 are the interface's own sysctls, indexed by their number in
	// include/uapi/linux/ip.h (counting from 1) and ipv6.h (from 0).
	Inet4, Inet6 []int32
	Counters     Counters
}

// BridgeState holds the settings of a bridge.
type BridgeState struct {
	STP, ForwardDelay uint32
	McastSnooping     bool
}

// Counters are an interface's counters since it was made.
type Counters struct {
	RxPackets uint64 `json:"rx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	RxErrors  uint64 `json:"rx_errors"`
	RxDropped uint64 `json:"rx_dropped"`
	TxPackets uint64 `json:"tx_packets"`
	TxBytes   uint64 `json:"tx_bytes"`
	TxErrors  uint64 `json:"tx_errors"`
	TxDropped uint64 `json:"tx_dropped"`
}

// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS.
const rtextFilterSkipStats = 1 << 3

// Links lists the namespace's interfaces. Counters are filled in only on request: the kernel sums
// them over all CPUs.
func (c *Conn) Links(counters bool) ([]Link, error) {
	request := NewBatch("", nil)
	request.begin(unix.RTM_GETLINK, unix.NLM_F_DUMP, nil)
	request.ifinfo(0, 0, 0)
	if !counters {
		request.attrU32(unix.IFLA_EXT_MASK, rtextFilterSkipStats)
	}
	request.end()
	var links []Link
	err := c.dump("interfaces", request, func() { links = nil }, func(_ uint16, body []byte) error {
		link, err := parseLink(body)
		links = append(links, link)
		return err
	})
	return links, err
}

var operstates = []string{"unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"}

func parseLink(body []byte) (Link, error) {
	if len(body) < unix.SizeofIfInfomsg {
		return Link{}, fmt.Errorf("interface message of %d bytes, want at least %d", len(body),
			unix.SizeofIfInfomsg)
	}
	link := Link{Index: int(int32(binary.NativeEndian.Uint32(body[4:])))}
	flags := binary.NativeEndian.Uint32(body[8:])
	link.Up = flags&unix.IFF_UP != 0
	link.Carrier = flags&unix.IFF_LOWER_UP != 0
	err := eachAttr(body[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			link.Name = cString(value)
		case unix.IFLA_ADDRESS:
			copy(link.MAC[:], value)
		case unix.IFLA_MTU:
			link.MTU = int(u32(value))
		case unix.IFLA_GROUP:
			link.Group = u32(value)
		case unix.IFLA_MASTER:
			link.Master = int(u32(value))
		case unix.IFLA_LINK:
			link.PeerIndex = int(u32(value))
		case unix.IFLA_GSO_MAX_SEGS:
			link.MaxSegments = int(u32(value))
		case unix.IFLA_OPERSTATE:
			if len(value) > 0 && int(value[0]) < len(operstates) {
				link.Operstate = operstates[value[0]]
			}
		case unix.IFLA_CARRIER_DOWN_COUNT:
			link.Downs = uint64(u32(value))
		case unix.IFLA_LINKINFO:
			link.parseInfo(value)
		case unix.IFLA_AF_SPEC:
			link.parseFamilies(value)
		case unix.IFLA_STATS64:
			link.Counters = parseCounters(value)
		}
	})
	return link, err
}

func (l *Link) parseInfo(value []byte) {
	var data []byte
	_ = eachAttr(value, func(kind uint16, value []byte) { // a malformed tail shows as a missing kind
		switch kind {
		case unix.IFLA_INFO_KIND:
			l.Kind = cString(value)
		case unix.IFLA_INFO_DATA:
			data = value
		}
	})
	if l.Kind != "bridge" {
		return
	}
	l.Bridge = &BridgeState{}
	_ = eachAttr(data, func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_BR_STP_STATE:
			l.Bridge.STP = u32(value)
		case unix.IFLA_BR_FORWARD_DELAY:
			l.Bridge.ForwardDelay = u32(value)
		case unix.IFLA_BR_MCAST_SNOOPING:
			l.Bridge.McastSnooping = !bytes.Equal(value, []byte{0})
		}
	})
}

func (l *Link) parseFamilies(value []byte) {
	_ = eachAttr(value, func(family uint16, value []byte) {
		_ = eachAttr(value, func(kind uint16, value []byte) {
			switch {
			case family == unix.AF_INET && kind == unix.IFLA_INET_CONF:
				l.Inet4 = int32s(value)
			case family == unix.AF_INET6 && kind == unix.IFLA_INET6_CONF:
				l.Inet6 = int32s(value)
			}
		})
	})
}

func int32s(value []byte) []int32 {
	numbers := make([]int32, len(value)/4)
	for i := range numbers {
		numbers[i] = int32(binary.NativeEndian.Uint32(value[4*i:]))
	}
	return numbers
}

// parseCounters reads a struct rtnl_link_stats64, whose first eight fields are
// packets, bytes, errors and drops, each received and sent.
func parseCounters(value []byte) Counters {
	field := func(i int) uint64 {
		if len(value) < 8*i+8 {
			return 0
		}
		return binary.NativeEndian.Uint64(value[8*i:])
	}
	return Counters{
		RxPackets: field(0), TxPackets: field(1), RxBytes: field(2), TxBytes: field(3),
		RxErrors: field(4), TxErrors: field(5), RxDropped: field(6), TxDropped: field(7),
	}
}

// u32 reads a 32-bit attribute; a short one reads as 0.
func u32(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// ValidName reports whether the kernel takes name for an interface: 1 to 15
// bytes, no slash, colon or white space, not "." or "..".
func ValidName(name string) bool {
	return name != "" && len(name) < unix.IFNAMSIZ && name != "." && name != ".." &&
		!strings.ContainsAny(name, "/: \t\n\v\f\r")
}
