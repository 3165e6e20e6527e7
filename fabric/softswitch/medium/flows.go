package medium

import (
	"encoding/binary"
	"slices"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
)

// Flows assigns packets their place in their flow when they leave a node. There is one Flows for
// each emulated NIC.
//
// A flow is the packets from one address to another in one connection. Its key consists of values
// that are the same in every run: the NIC, the two addresses, the protocol and the ports that are
// not ephemeral. The last part of the key is the ordinal of the connection among connections that
// are equal in all other parts. Connections are distinguished by values outside the key, and
// counted in the order in which they begin:
//
//   - TCP: by both ports. A SYN with a new sequence number begins a new
//     connection on the same ports; a repeated SYN does not. The listener's port
//     is in the key; the client's is only if the client bound it on purpose.
//     Ephemeral ports are never in the key: if a listener lets its kernel choose
//     a port, only the order identifies its connections.
//   - UDP: by both ports. Ports that are not ephemeral are in the key, and so are
//     planned source ports. The source port of RoCEv2 and of tunnels is a hash
//     (RFC 7510, RFC 7348), and in the key only if it is planned.
//   - Echo, of ICMP and ICMPv6: by the identifier, which a kernel or a process
//     id chooses; the type is in the key.
//   - Other ICMP: one flow for each type.
//   - Fragments: one flow for each pair of addresses and protocol. This includes
//     first fragments, because the others have no ports.
//   - Other protocols: one flow for each pair of addresses. Frames that are not
//     IP packets: one flow for each pair of stations and EtherType.
//
// If a node's processes connect in a random order, its flows are random, too. The same holds for a
// node with more than MaxFlows connections at once: the connection that was silent for longest is
// forgotten, and begins anew with its next packet.
//
// The zero value is not usable; nothing is safe for concurrent use.
type Flows struct {
	seed     uint64
	ports    *Ports
	open     bounded[tuple, connection]
	services bounded[tuple, uint64] // number of connections that began
	// latest is the connection of the previous packet, which most packets also belong to; it is the
	// newest in open. It is nil before the first packet.
	latest *connection
	exact  tuple // of latest
}

// maxFlows is how many connections a NIC remembers, and how many services. Together they take up to
// 0.4 MB, allocated as needed.
const maxFlows = 4096

// tuple identifies a connection; with its ephemeral parts 0 it identifies a service.
type tuple struct {
	src, dst         [16]byte
	srcPort, dstPort uint16
	id               uint16
	protocol         uint16 // an IP protocol, or one of the constants below
}

// Protocols that are not IP protocols, which take 8 bits.
const (
	protocolFragments = 1 << 8
	protocolEther     = 2 << 8
)

// connection is the state of a flow.
type connection struct {
	flow, packets uint64
	sequence      uint32
	synchronised  bool // sequence is its SYN's
}

// NewFlows returns the flows of a NIC. All NICs of a testbed share the ports; nil means Linux's
// defaults.
func NewFlows(testbed uint64, node, nic string, ports *Ports) *Flows {
	if ports == nil {
		ports = defaultPorts
	}
	f := &Flows{seed: draw.Seed(testbed, "nic", node, nic), ports: ports}
	f.open.limit, f.services.limit = maxFlows, maxFlows
	return f
}

// Mark sets the packet's Flow and Ordinal from its Headers.
func (f *Flows) Mark(one *packet.Packet) {
	exact := exactly(one)
	at, known := f.latest, f.latest != nil && exact == f.exact
	if !known {
		hash := exact.hash(f.seed)
		if at, known = f.open.find(hash, exact); !known {
			at = f.open.add(hash, exact)
		}
		f.latest, f.exact = at, exact
	}
	syn := one.Headers.TCPFlags&wire.TCPSYN != 0
	sequence := uint32(0)
	if syn {
		sequence = wire.TCP(one.Data[one.Headers.L4:]).Seq()
	}
	if !known || syn && (!at.synchronised || at.sequence != sequence) {
		*at = connection{flow: f.begin(f.service(exact, one)), sequence: sequence, synchronised: syn}
	}
	at.packets++
	one.Flow, one.Ordinal = at.flow, at.packets
}

// begin returns the flow of a new connection to a service.
func (f *Flows) begin(service tuple) uint64 {
	hash := service.hash(f.seed)
	count, known := f.services.find(hash, service)
	if !known {
		count = f.services.add(hash, service)
	}
	*count++
	return draw.Pair(hash, *count)
}

// exactly returns the packet's connection.
func exactly(one *packet.Packet) (exact tuple) {
	h := &one.Headers
	if h.Flags&(wire.IsIPv4|wire.IsIPv6) == 0 {
		exact.protocol, exact.dstPort = protocolEther, h.EtherType
		if len(one.Data) >= wire.EthernetLen {
			copy(exact.dst[:], one.Data[0:6])
			copy(exact.src[:], one.Data[6:12])
		}
		return exact
	}
	exact = tuple{src: h.Src, dst: h.Dst, protocol: uint16(h.Protocol)}
	if h.Has(wire.Fragment) {
		exact.protocol |= protocolFragments
		return exact
	}
	exact.srcPort, exact.dstPort = h.SrcPort, h.DstPort
	if h.Protocol != wire.ProtocolICMPv4 && h.Protocol != wire.ProtocolICMPv6 {
		return exact
	}
	if h.Verdict == wire.ShortTransport || int(h.Payload) < int(h.L4)+wire.ICMPLen {
		return exact
	}
	message := wire.ICMPv4(one.Data[h.L4:h.End])
	exact.dstPort = uint16(message.Type())
	if isEcho(h.Protocol, message.Type()) {
		exact.id = message.ID()
	}
	return exact
}

// service returns the service that a connection belongs to.
func (f *Flows) service(exact tuple, one *packet.Packet) tuple {
	service, h := exact, &one.Headers
	service.id = 0
	if exact.protocol != wire.ProtocolTCP && exact.protocol != wire.ProtocolUDP {
		return service
	}
	if !f.ports.inKey(h.SrcPort) ||
		exact.protocol == wire.ProtocolUDP && entropy(h.DstPort) && !f.ports.isPlanned(h.SrcPort) {
		service.srcPort = 0
	}
	if !f.ports.inKey(h.DstPort) {
		service.dstPort = 0
	}
	return service
}

func isEcho(protocol, kind uint8) bool {
	if protocol == wire.ProtocolICMPv4 {
		return kind == wire.ICMPv4Echo || kind == wire.ICMPv4EchoReply
	}
	return kind == wire.ICMPv6Echo || kind == wire.ICMPv6EchoReply
}

// entropy reports whether senders put a hash into the source port of datagrams to a UDP port:
// RoCEv2, VXLAN, Geneve, GUE, MPLS.
func entropy(port uint16) bool {
	return port == 4791 || port == 4789 || port == 6081 || port == 6080 || port == 6635
}

func (t *tuple) hash(seed uint64) uint64 {
	x := draw.Mix(seed + binary.BigEndian.Uint64(t.src[:8]))
	x = draw.Mix(x + binary.BigEndian.Uint64(t.src[8:]))
	x = draw.Mix(x + binary.BigEndian.Uint64(t.dst[:8]))
	x = draw.Mix(x + binary.BigEndian.Uint64(t.dst[8:]))
	return draw.Mix(x + (uint64(t.srcPort)<<48 | uint64(t.dstPort)<<32 | uint64(t.id)<<16 |
		uint64(t.protocol)))
}

// Ports specifies the ports that are part of a flow's key. It does not change, and may be shared.
type Ports struct {
	first, last uint16 // the ephemeral range
	planned     []uint16
}

// defaultPorts is Linux's range of ephemeral ports, 32768 to 60999
// (net.ipv4.ip_local_port_range), with nothing planned.
var defaultPorts = newPorts(32768, 60999)

// newPorts returns Ports with a range of ephemeral ports from first to last, inclusive. Planned
// ports are in the key even if they are in the range.
func newPorts(first, last uint16, planned ...uint16) *Ports {
	planned = slices.Clone(planned)
	slices.Sort(planned)
	return &Ports{first: first, last: last, planned: slices.Compact(planned)}
}

func (p *Ports) isPlanned(port uint16) bool {
	_, found := slices.BinarySearch(p.planned, port)
	return found
}

func (p *Ports) inKey(port uint16) bool {
	return port < p.first || port > p.last || p.isPlanned(port)
}
