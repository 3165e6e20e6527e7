package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/transports/datagram"
)

const (
	batch   = 64 // most packets of one call
	senders = 16
)

// outgoing is memory for one call that sends. It has packets with their headers, and messages for
// the kernel, each of one packet or of several that the kernel cuts.
type outgoing struct {
	buffers []byte
	size    int
	vectors [batch]unix.Iovec
	count   int // of packets

	headers  [batch]datagram.Header
	names    [batch]datagram.Name
	controls [batch]datagram.Control
	fds      [batch]int
	from     [batch]int // first packet of each message
	messages int
	first    int // first message that was not sent
	open     open

	senders [senders]sender
	whole   bool // each packet is sent alone, because the kernel failed to cut one
}

// open is the last message, as long as packets may join it. If no device cuts the message, its
// first packet tells the receiver where to cut. Others of its message follow it, so it has full
// length.
type open struct {
	fd          int
	to          netip.Addr
	size, bytes int // of the first packet, and of all before the last
	more        bool
}

// sender is a UDP socket for the data packets of one source port, so that the kernel cuts them.
// Only the first of a device's many queue pairs have one.
type sender struct {
	fd   int
	port uint16 // 0 until it is bound
}

// openSenders opens sockets without a port. They belong to the network in which the device was
// opened, whichever goroutine sends by them later.
func (s *socket) openSenders(nic string) (err error) {
	for i := range s.out.senders {
		if s.out.senders[i].fd, err = s.openSender(nic); err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
	}
	return nil
}

func (s *socket) openSender(nic string) (fd int, err error) {
	if fd, err = unix.Socket(s.family(), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_UDP); err != nil {
		return -1, err
	}
	level, class, discover, do := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if s.addr.Is6() {
		level, class, discover, do = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_MTU_DISCOVER,
			unix.IPV6_PMTUDISC_PROBE
		err = errors.Join(unix.SetsockoptInt(fd, level, unix.IPV6_V6ONLY, 1),
			unix.SetsockoptInt(fd, level, unix.IPV6_AUTOFLOWLABEL, 0))
	}
	err = errors.Join(err,
		unix.SetsockoptInt(fd, level, discover, do),
		unix.SetsockoptInt(fd, level, class, int(s.dscp)<<2|int(wire.ECT0)),
		// as the raw socket, not derived from the class
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, 0),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		takeNothing(fd))
	if nic != "" {
		if bound := unix.BindToDevice(fd, nic); bound != nil && !errors.Is(bound, unix.EPERM) {
			err = errors.Join(err, fmt.Errorf("bind to device %s: %w", nic, bound))
		}
	}
	return fd, err
}

// sender returns the socket for data from a source port: the raw socket if all senders have other
// ports.
func (s *socket) sender(port uint16) int {
	for i := range s.out.senders {
		one := &s.out.senders[i]
		switch one.port {
		case 0:
			if one.port = port; unix.Bind(one.fd, s.name(int(port))) != nil {
				unix.Close(one.fd)
				one.fd = s.raw
			}
			return one.fd
		case port:
			return one.fd
		}
	}
	return s.raw
}

// memory allocates room for packets.
func (s *socket) memory(mtu int) {
	o := &s.out
	o.size = (s.most(mtu) + 127) &^ 63
	o.buffers = make([]byte, batch*o.size)
	for i := range o.headers {
		o.headers[i].Name, o.headers[i].Namelen = (*byte)(unsafe.Pointer(&o.names[i])),
			datagram.NameLen(s.addr.Is6())
	}
}

// most is the length in bytes of the longest packet, with headers of IP and UDP.
func (s *socket) most(mtu int) int {
	return s.headersLen() + max(mtu+infiniband.MaxOverhead,
		infiniband.Len(infiniband.UDSendOnly, infiniband.MADLen))
}

// room returns memory for the next packet to send, or nil if the batch or the NIC's queue is full.
func (s *socket) room() infiniband.Packet {
	switch {
	case s.nic != nil && s.nic.Room() == 0:
		s.full = true
		return nil
	case s.out.count == batch:
		return nil
	case s.nic != nil:
		return s.nic.Packet()[s.headersLen():min(s.out.size, len(s.nic.Packet()))]
	}
	return s.next()
}

// next returns the batch's memory for the next packet.
func (s *socket) next() infiniband.Packet {
	return s.out.buffers[s.out.count*s.out.size:][s.headersLen():s.out.size]
}

// add adds the n bytes of packet written into room to the batch, with its headers and ICRC.
func (s *socket) add(to netip.Addr, sourcePort uint16, n int) {
	s.addAt(to, sourcePort, n, time.Time{})
}

// addAt is add for a packet that leaves at a time, if it takes the NIC's queue. The zero time is now.
func (s *socket) addAt(to netip.Addr, sourcePort uint16, n int, departs time.Time) {
	if s.nic == nil || !s.bypass(to, sourcePort, n, departs) {
		s.addToBatch(to, sourcePort, n)
	}
}

// addToBatch is add for a packet in next that takes the kernel's path.
func (s *socket) addToBatch(to netip.Addr, sourcePort uint16, n int) {
	o := &s.out
	fd, id, joins := s.raw, uint16(0), false
	if p := s.next(); p.Opcode().HasPayload() && p.Opcode().Service() == infiniband.RC && !o.whole {
		fd = s.sender(sourcePort)
	}
	v := &o.vectors[o.count]
	switch {
	case fd == s.raw:
		if s.id++; s.id == 0 { // the kernel replaces 0 by its own
			s.id = 1
		}
		id = s.id
		s.begin(fd, to, 0)
	case o.joins(fd, to, n):
		joins, id = true, uint16(o.count-o.from[o.messages-1])
	default:
		s.begin(fd, to, infiniband.Port)
		o.open = open{fd: fd, to: to, size: n, more: !s.next().Opcode().Ends()}
	}
	whole := o.buffers[o.count*o.size:][:s.headersLen()+n]
	headers := whole[:s.headersLen()]
	if joins {
		s.another(headers, o.buffers[(o.count-1)*o.size:][:len(headers)], id, n)
	} else {
		s.encode(whole, to, sourcePort, id)
	}
	infiniband.Packet(whole[len(headers):]).Seal(headers)
	if fd != s.raw {
		whole = whole[s.headersLen():]
	}
	v.Base = &whole[0]
	v.SetLen(len(whole))
	o.count++
	m := o.messages - 1
	packets := o.count - o.from[m]
	if o.headers[m].SetIovlen(packets); packets > 1 {
		o.controls[m].Cut(&o.headers[m], o.open.size)
	}
}

// begin begins a message with the packet that is being added.
func (s *socket) begin(fd int, to netip.Addr, port uint16) {
	o := &s.out
	m := o.messages
	o.fds[m], o.from[m], o.names[m] = fd, o.count, datagram.NameOf(to, port)
	o.headers[m].Iov = &o.vectors[o.count]
	o.controls[m].None(&o.headers[m])
	o.messages++
	o.open = open{}
}

// joins reports whether a packet may join the open message.
func (o *outgoing) joins(fd int, to netip.Addr, n int) bool {
	m := &o.open
	if !m.more || m.fd != fd || m.to != to || n > m.size || m.bytes+m.size+n > datagram.MostCutBytes ||
		o.count-o.from[o.messages-1] == datagram.MostCut {
		return false
	}
	m.bytes += m.size
	m.more = n == m.size // a shorter packet must be the last
	return true
}

// encode writes the headers before a packet.
func (s *socket) encode(whole []byte, to netip.Addr, sourcePort, id uint16) {
	headers, packet := whole[:s.headersLen()], infiniband.Packet(whole[s.headersLen():])
	// Packets without data must not be marked: a mark would not reduce their rate.
	class, ecn := s.dscp, wire.NotECT
	switch o := packet.Opcode(); {
	case o == infiniband.CNP:
		class = dscpCNP
	case o.HasPayload() && o.Service() == infiniband.RC:
		ecn = wire.ECT0
	}
	length := wire.UDPLen + len(packet)
	if s.addr.Is4() {
		wire.IPv4(headers).Encode(&wire.IPv4Fields{
			DSCP:         class,
			ECN:          ecn,
			TotalLength:  uint16(wire.IPv4MinLen + length),
			ID:           id,
			DontFragment: true,
			TTL:          ttl,
			Protocol:     wire.ProtocolUDP,
			Src:          s.addr.As4(),
			Dst:          to.As4(),
		})
	} else {
		wire.IPv6(headers).Encode(&wire.IPv6Fields{
			DSCP:          class,
			ECN:           ecn,
			PayloadLength: uint16(length),
			NextHeader:    wire.ProtocolUDP,
			HopLimit:      ttl,
			Src:           s.addr.As16(),
			Dst:           to.As16(),
		})
	}
	wire.UDP(headers[len(headers)-wire.UDPLen:]).Encode(
		&wire.UDPFields{SrcPort: sourcePort, DstPort: infiniband.Port, Length: uint16(length)})
}

// another writes the headers of a packet of n bytes that is cut from the same message as another
// one, as far as the ICRC covers them.
func (s *socket) another(headers, other []byte, id uint16, n int) {
	copy(headers, other)
	n += wire.UDPLen
	if s.addr.Is4() {
		wire.IPv4(headers).SetTotalLength(uint16(wire.IPv4MinLen + n))
		wire.IPv4(headers).SetID(id)
	} else {
		wire.IPv6(headers).SetPayloadLength(uint16(n))
	}
	wire.UDP(headers[len(headers)-wire.UDPLen:]).SetLength(uint16(n))
}

// send sends the batch as far as the NIC's queue has room. Packets that were not sent are the first
// of the next call: an RDMA NIC does not drop its own packets.
func (s *socket) send() error {
	o := &s.out
	if s.put > 0 {
		s.put = 0
		if err := s.nic.Post(); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	o.open.more = false
	for o.first < o.messages {
		fd, end := o.fds[o.first], o.first+1
		for end < o.messages && o.fds[end] == fd {
			end++
		}
		n, errno := datagram.Send(fd, o.headers[o.first:end])
		o.first += n
		switch {
		case errno == 0:
		case errno == unix.EAGAIN:
			return nil
		case fd != s.raw && datagram.CutsNothing(errno):
			s.uncut()
		case errno == unix.EMSGSIZE:
			o.first++ // longer than the link allows now: lost
		default:
			return fmt.Errorf("send: %w", errno)
		}
	}
	o.first, o.messages, o.count = 0, 0, 0
	return nil
}

// uncut makes the unsent packets, and all that follow, be sent one by one.
func (s *socket) uncut() {
	o := &s.out
	count := o.count
	o.whole, o.count, o.messages = true, o.from[o.first], o.first
	for o.count < count {
		headers := o.buffers[o.count*o.size:][:s.headersLen()]
		to, udp := netip.Addr{}, wire.UDP(headers[len(headers)-wire.UDPLen:])
		if s.addr.Is4() {
			to = netip.AddrFrom4(wire.IPv4(headers).Dst())
		} else {
			to = netip.AddrFrom16(wire.IPv6(headers).Dst())
		}
		s.addToBatch(to, udp.SrcPort(), int(udp.Length())-wire.UDPLen)
	}
}
