package datagram

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"time"

	"railbed/internal/kernel"
	"railbed/internal/nicqueue"
	"railbed/internal/wire"
	"railbed/transports"
)

// NIC sends and receives UDP datagrams as whole frames by queues of the node's emulated NIC, past the
// node's kernel. Datagrams to addresses whose next station the kernel has not resolved, and to the node
// itself, must take the kernel's path.
//
// One goroutine may send while another receives.
type NIC struct {
	queues *nicqueue.Program
	routes *kernel.Routes
	src    netip.Addr
	v6     bool
	index  int
	bound  int // the index if the name was given, else 0
	mac    wire.MAC
	hops   map[netip.Addr]hop
	id     uint16
	holds  int
}

// hop is the resolved next station to an address, or when it was not resolved.
type hop struct {
	mac   wire.MAC
	known bool
	asked time.Time
}

// askEvery is how often an address that was not resolved is looked up again.
const askEvery = 100 * time.Millisecond

// NICOptions are the options of OpenNIC.
type NICOptions struct {
	// Name is the name of the interface to which the program's sockets are bound. Without a name they are not
	// bound: then the NIC is the interface with the address, and it sends what the kernel would send by it.
	Name string
	Addr netip.Addr // of the interface
	// First and Last are the UDP ports whose datagrams the NIC receives.
	First, Last uint16
	// Key limits them to datagrams that it matches, if it matches any.
	Key nicqueue.Match
	// Send and Receive are the numbers of frames that the queues hold. Defaults: 64 and 512.
	Send, Receive int
	// Longest is the length of the longest packet to send or receive. Default and most: the NIC's MTU. The
	// memory of the queues is in proportion.
	Longest int
	// Unsolicited matches the datagrams that may wait for more.
	Unsolicited nicqueue.Match
}

// OpenNIC opens queues at a NIC of the calling thread's network namespace. The error is nicqueue.ErrNoBypass
// if the NIC has none for programs.
func OpenNIC(o NICOptions) (*NIC, error) {
	bound := o.Name != ""
	found, err := InterfaceOf(o.Name, o.Addr)
	if err != nil {
		return nil, fmt.Errorf("open queues of NIC: %w", err)
	}
	o.Name = found.Name
	if len(found.HardwareAddr) != len(wire.MAC{}) {
		return nil, fmt.Errorf("open queues of NIC %s: its address has %d bytes, want %d", o.Name,
			len(found.HardwareAddr), len(wire.MAC{}))
	}
	n := &NIC{src: o.Addr, v6: o.Addr.Is6(), index: found.Index, mac: wire.MAC(found.HardwareAddr),
		hops: map[netip.Addr]hop{}, holds: cmp.Or(o.Receive, 512)}
	if bound {
		n.bound = n.index
	}
	if n.routes, err = kernel.OpenRoutes(); err != nil {
		return nil, fmt.Errorf("open queues of NIC %s: %w", o.Name, err)
	}
	longest := min(cmp.Or(o.Longest, found.MTU), found.MTU)
	n.queues, err = nicqueue.Open(nicqueue.Request{NIC: o.Name, First: o.First, Last: o.Last, Key: o.Key,
		Geometry: nicqueue.Geometry{Send: cmp.Or(o.Send, 64), Receive: n.holds,
			Room: longest + wire.EthernetLen}, Unsolicited: o.Unsolicited})
	if err != nil {
		n.routes.Close()
		return nil, err
	}
	return n, nil
}

// InterfaceOf finds an interface by its name or, without one, by an address.
func InterfaceOf(name string, addr netip.Addr) (*net.Interface, error) {
	if name != "" {
		return net.InterfaceByName(name)
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if has, err := netip.ParsePrefix(a.String()); err == nil && has.Addr() == addr.WithZone("") {
				return &all[i], nil
			}
		}
	}
	return nil, fmt.Errorf("no interface has the address %v", addr)
}

// Station returns the next station on the way to an address. It returns false if datagrams to the address
// cannot take the NIC's queues.
func (n *NIC) Station(to netip.Addr) (station wire.MAC, reaches bool) {
	h, asked := n.hops[to]
	if h.known {
		return h.mac, true
	}
	if now := time.Now(); !asked || now.Sub(h.asked) > askEvery {
		h = hop{asked: now}
		found, err := n.routes.HopTo(to, n.src, n.bound)
		if err == nil && !found.Local && found.Index == n.index {
			h.mac, h.known = wire.MAC(found.MAC), found.Known
		}
		n.hops[to] = h
	}
	return h.mac, h.known
}

// Outgoing is a datagram to send.
type Outgoing struct {
	To               netip.Addr
	Station          wire.MAC // on the way there
	SrcPort, DstPort uint16
	DSCP             uint8
	ECN              wire.ECN
	// Header and Payload are the datagram's data, one after the other.
	Header, Payload []byte
	// Departs is when it is to leave. The zero time is now.
	Departs time.Time
}

// hopLimit is the initial TTL or hop limit, as Linux has it.
const hopLimit = 64

// Room returns the number of datagrams that can be Put.
func (n *NIC) Room() int { return n.queues.Room() }

// Packet returns the memory of the next packet to put, from its IP header on. There must be room.
func (n *NIC) Packet() []byte { return n.queues.Frame()[wire.EthernetLen:] }

// PutPacket adds the packet of so many bytes that was written to Packet, for the next station on its way. The
// packet leaves after Post, when its time has come. The zero time is now.
func (n *NIC) PutPacket(station wire.MAC, length int, departs time.Time) {
	ether := wire.EthernetFields{Dst: station, Src: n.mac, EtherType: wire.EtherTypeIPv4}
	if n.v6 {
		ether.EtherType = wire.EtherTypeIPv6
	}
	wire.Ethernet(n.queues.Frame()).Encode(&ether)
	if departs.IsZero() {
		departs = time.Now()
	}
	n.queues.Put(wire.EthernetLen+length, nicqueue.At(departs))
}

// Put adds a datagram to the queue. There must be room, and the datagram must fit the NIC's MTU. It leaves
// after Post.
func (n *NIC) Put(o *Outgoing) {
	ip := wire.IPv4MinLen
	if n.v6 {
		ip = wire.IPv6Len
	}
	length := wire.UDPLen + len(o.Header) + len(o.Payload)
	packet := n.Packet()[:ip+length]
	var pseudo uint16
	if n.v6 {
		src, dst := n.src.As16(), o.To.As16()
		wire.IPv6(packet).Encode(&wire.IPv6Fields{DSCP: o.DSCP, ECN: o.ECN, PayloadLength: uint16(length),
			NextHeader: wire.ProtocolUDP, HopLimit: hopLimit, Src: src, Dst: dst})
		pseudo = wire.PseudoIPv6(src, dst, wire.ProtocolUDP, length)
	} else {
		src, dst := n.src.As4(), o.To.As4()
		n.id++
		wire.IPv4(packet).Encode(&wire.IPv4Fields{DSCP: o.DSCP, ECN: o.ECN, TotalLength: uint16(ip + length),
			ID: n.id, DontFragment: true, TTL: hopLimit, Protocol: wire.ProtocolUDP, Src: src, Dst: dst})
		pseudo = wire.PseudoIPv4(src, dst, wire.ProtocolUDP, length)
	}
	udp := wire.UDP(packet[ip:])
	udp.Encode(&wire.UDPFields{SrcPort: o.SrcPort, DstPort: o.DstPort, Length: uint16(length)})
	copy(udp[wire.UDPLen+copy(udp[wire.UDPLen:], o.Header):], o.Payload)
	udp.FillChecksum(pseudo)
	n.PutPacket(o.Station, len(packet), o.Departs)
}

// Post passes the datagrams that were Put to the NIC.
func (n *NIC) Post() error {
	transports.BeforeWrite()
	return n.queues.Post()
}

// Incoming is a datagram that arrived.
type Incoming struct {
	From   netip.Addr
	Port   uint16 // source port
	Marked bool   // congestion experienced
	Data   []byte
	// Arrived is when it arrived at the NIC.
	Arrived time.Time
}

// NextPacket returns the next packet from its IP header on, or nil, and when it arrived at the NIC. Bytes of
// the link may follow the packet. The memory is valid until Return.
func (n *NIC) NextPacket() (packet []byte, arrived time.Time, err error) {
	frame, at, err := n.queues.Next()
	if frame == nil {
		return nil, arrived, err
	}
	transports.AfterRead()
	return frame[wire.EthernetLen:], nicqueue.Time(at), nil
}

// Next returns the next datagram. It drops what the kernel would drop: datagrams for other addresses, and
// with wrong checksums. The data is valid until Return.
func (n *NIC) Next(in *Incoming) (bool, error) {
	for {
		frame, at, err := n.queues.Next()
		if frame == nil {
			return false, err
		}
		transports.AfterRead()
		h := wire.Parse(frame)
		if h.Verdict != wire.WellFormed || h.Protocol != wire.ProtocolUDP || h.DstAddr() != n.src {
			continue
		}
		udp := wire.UDP(frame[h.L4:h.End])
		if !udp.Valid() {
			continue
		}
		var pseudo uint16
		if n.v6 {
			pseudo = wire.PseudoIPv6(h.Src, h.Dst, wire.ProtocolUDP, int(udp.Length()))
		} else {
			pseudo = wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]), wire.ProtocolUDP,
				int(udp.Length()))
		}
		if !udp.ChecksumValid(pseudo) {
			continue
		}
		*in = Incoming{From: h.SrcAddr(), Port: h.SrcPort, Marked: h.ECN == wire.CE, Data: udp.Payload(),
			Arrived: nicqueue.Time(at)}
		return true, nil
	}
}

// Holds is the number of datagrams that can wait to be received.
func (n *NIC) Holds() int { return n.holds }

// Return gives the memory of all datagrams from Next back to the NIC.
func (n *NIC) Return() { n.queues.Return() }

// FullWait is the longest wait for room in a full queue, whose Bell normally ends the wait. A transport
// that ends waits at most MostFullWaits times: the NIC may have stopped.
const (
	FullWait      = 10 * time.Millisecond
	MostFullWaits = 100
)

// A NIC holds packets of a paced transport until their departure: aheadPackets at the rate, at most those of
// mostAhead.
const (
	aheadPackets = 16
	mostAhead    = 2 * time.Millisecond
)

// Ahead returns how long before its departure a transport passes a packet to the NIC, with packets of so many
// bytes and a rate in bit/s. The transport wakes when half of these packets have left.
func Ahead(bytes int, rate uint64) time.Duration {
	return min(mostAhead, aheadPackets*time.Duration(uint64(bytes)*8*uint64(time.Second)/rate))
}

// Bell is a descriptor to wait for, between Rest and Wake.
func (n *NIC) Bell() int { return n.queues.Bell() }

// Rest prepares a wait for a number of datagrams or a solicited datagram and, if the queue for sending was
// full, for room there. It returns false if there is a datagram or such room already.
func (n *NIC) Rest(datagrams int, full bool) bool {
	return n.queues.Rest(datagrams) && (!full || n.queues.RestFull())
}

// Wake ends the wait. The caller passes whether the wait found Bell readable.
func (n *NIC) Wake(readable bool) { n.queues.Wake(readable) }

// Close closes the queues. A second Close does nothing.
func (n *NIC) Close() error {
	n.routes.Close()
	return n.queues.Close()
}
