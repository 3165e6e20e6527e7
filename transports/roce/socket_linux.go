package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/transports/datagram"
	"railbed/transports/infiniband"
	"railbed/transports/wire"
)

const (
	batch = 64 // packets of one call
	// blockBits are those of a queue pair's number that its socket chooses freely.
	// The others are the socket's own at its address, so that several processes can
	// share it.
	blockBits = 12
	blocks    = 1 << (24 - blockBits)
	// wantedRoom is the receive buffer that the socket asks for.
	wantedRoom = 8 << 20
	ttl        = 64
	dscpCNP    = 48     // as ConnectX sends it
	fullMember = 0x8000 // of a P_Key
)

// socket is a RoCEv2 port: a raw socket, because the ICRC covers the header of IP,
// and what keeps others from answering in its place.
type socket struct {
	addr   netip.Addr
	dscp   uint8
	raw    int // hears, and sends with headers of its own
	quiet  int // a UDP socket at the port: without it the kernel says that it is unreachable
	claim  int // a name that holds the block
	block  uint32
	waiter *datagram.Waiter
	id     uint16

	in  incoming
	out outgoing

	bound   bool // to a NIC
	badICRC atomic.Uint64
}

// incoming is memory for what one call receives.
type incoming struct {
	headers  [batch]datagram.Header
	names    [batch]datagram.Name
	vectors  [batch]unix.Iovec
	controls [batch][32]byte
	buffers  []byte
	size     int
	list     []arrival
}

// arrival is a packet that came, whose ICRC is right.
type arrival struct {
	from   netip.Addr
	packet infiniband.Packet
	marked bool // with congestion experienced
}

// outgoing is memory for what one call sends.
type outgoing struct {
	headers [batch]datagram.Header
	names   [batch]datagram.Name
	vectors [batch]unix.Iovec
	buffers []byte
	size    int
	first   int // that has not gone
	count   int
}

// openSocket takes a block of queue pairs at the address, for packets with so much
// payload. It needs the right to open raw sockets (CAP_NET_RAW).
func openSocket(addr netip.Addr, nic string, dscp uint8, mtu int) (s *socket, err error) {
	s = &socket{addr: addr, dscp: dscp, raw: -1, quiet: -1, claim: -1}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.take(); err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	if s.raw, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	if err := s.prepare(nic); err != nil {
		return nil, fmt.Errorf("prepare raw socket: %w", err)
	}
	if err := s.keepQuiet(family); err != nil {
		return nil, err
	}
	if s.waiter, err = datagram.NewWaiter(s.raw); err != nil {
		return nil, err
	}
	s.memory(mtu)
	return s, nil
}

// take finds a block that nobody has in this network: an abstract name of a unix
// socket belongs to a network, and goes with its process.
func (s *socket) take() (err error) {
	if s.claim, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open unix socket: %w", err)
	}
	for range 100 {
		s.block = 1 + rand.Uint32N(blocks-1)
		err = unix.Bind(s.claim, &unix.SockaddrUnix{Name: fmt.Sprintf("@railbed-roce-%v-%d", s.addr, s.block)})
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("take a block of queue pairs: %w", err)
	}
	return nil
}

// number is the number of one of the socket's queue pairs.
func (s *socket) number(n uint32) infiniband.QPN {
	return infiniband.QPN(s.block<<blockBits | n&(1<<blockBits-1))
}

// prepare sets the raw socket up: headers of its own, packets of the socket's
// queue pairs and of the general services alone.
func (s *socket) prepare(nic string) error {
	v6 := s.addr.Is6()
	level, own := unix.IPPROTO_IP, unix.IP_HDRINCL
	if v6 {
		level, own = unix.IPPROTO_IPV6, ipv6HdrIncl
	}
	err := unix.SetsockoptInt(s.raw, level, own, 1)
	if v6 {
		err = errors.Join(err, unix.SetsockoptInt(s.raw, level, unix.IPV6_RECVTCLASS, 1))
	}
	if unix.SetsockoptInt(s.raw, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wantedRoom) != nil {
		_ = unix.SetsockoptInt(s.raw, unix.SOL_SOCKET, unix.SO_RCVBUF, wantedRoom) // less only costs speed
	}
	filter := s.filter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = errors.Join(err, unix.SetsockoptSockFprog(s.raw, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if nic != "" {
		bound := unix.BindToDevice(s.raw, nic)
		if s.bound = bound == nil; !s.bound && !errors.Is(bound, unix.EPERM) {
			err = errors.Join(err, fmt.Errorf("bind to device %s: %w", nic, bound))
		}
	}
	var name unix.Sockaddr
	if v6 {
		name = &unix.SockaddrInet6{Addr: s.addr.As16()}
	} else {
		name = &unix.SockaddrInet4{Addr: s.addr.As4()}
	}
	return errors.Join(err, unix.Bind(s.raw, name))
}

// ipv6HdrIncl is IPV6_HDRINCL of linux/in6.h.
const ipv6HdrIncl = 36

// filter is the classic BPF program that passes UDP to the port for the socket's
// queue pairs and for the general services. Of IPv4 it sees the IP header, too.
func (s *socket) filter() []unix.SockFilter {
	const (
		portAt, queuePairAt = 2, wire.UDPLen + 4
	)
	load := unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0} // length of the IPv4 header
	if s.addr.Is6() {
		load = unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_IMM, K: 0}
	}
	return []unix.SockFilter{
		load,
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: infiniband.Port, Jf: 6},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: queuePairAt},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xFFFFFF},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(infiniband.GSI), Jt: 2},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: blockBits},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: s.block, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xFFFF},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// keepQuiet opens the UDP socket that takes nothing. Where the kernel's own RoCE
// has the port, that keeps quiet.
func (s *socket) keepQuiet(family int) (err error) {
	if s.quiet, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP); err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	program := unix.SockFprog{Len: 1, Filter: &nothing}
	var name unix.Sockaddr
	if s.addr.Is6() {
		name = &unix.SockaddrInet6{Addr: s.addr.As16(), Port: infiniband.Port}
	} else {
		name = &unix.SockaddrInet4{Addr: s.addr.As4(), Port: infiniband.Port}
	}
	err = errors.Join(
		unix.SetsockoptInt(s.quiet, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.SetsockoptSockFprog(s.quiet, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if bound := unix.Bind(s.quiet, name); bound != nil && !errors.Is(bound, unix.EADDRINUSE) {
		err = errors.Join(err, bound)
	}
	if err != nil {
		return fmt.Errorf("keep UDP port %d quiet: %w", infiniband.Port, err)
	}
	return nil
}

// memory makes room for packets.
func (s *socket) memory(mtu int) {
	size := s.headersLen() + mtu + infiniband.MaxOverhead
	size = (max(size, s.headersLen()+infiniband.Len(infiniband.UDSendOnly, infiniband.MADLen)) + 127) &^ 63
	s.in.size, s.in.buffers = size+wire.IPv4MaxLen, make([]byte, batch*(size+wire.IPv4MaxLen))
	s.out.size, s.out.buffers = size, make([]byte, batch*size)
	for i := range batch {
		in, out := &s.in.headers[i], &s.out.headers[i]
		s.in.vectors[i].Base = &s.in.buffers[i*s.in.size]
		s.in.vectors[i].SetLen(s.in.size)
		in.Name, in.Iov = (*byte)(unsafe.Pointer(&s.in.names[i])), &s.in.vectors[i]
		in.SetIovlen(1)
		s.out.vectors[i].Base = &s.out.buffers[i*size]
		out.Name, out.Namelen, out.Iov = (*byte)(unsafe.Pointer(&s.out.names[i])), datagram.NameLen(s.addr.Is6()), &s.out.vectors[i]
		out.SetIovlen(1)
	}
}

func (s *socket) headersLen() int {
	if s.addr.Is6() {
		return infiniband.HeadersIPv6
	}
	return infiniband.HeadersIPv4
}

// receive takes what is there. The list and its packets are good until the next
// call.
func (s *socket) receive() ([]arrival, error) {
	in := &s.in
	for i := range in.headers {
		h := &in.headers[i]
		h.Namelen, h.Control = unix.SizeofSockaddrInet6, &in.controls[i][0]
		h.SetControllen(len(in.controls[i]))
	}
	n, errno := datagram.Receive(s.raw, in.headers[:])
	if errno != 0 {
		return nil, fmt.Errorf("receive: %w", errno)
	}
	in.list = in.list[:0]
	for i := range n {
		data := in.buffers[i*in.size:][:in.headers[i].N]
		from := datagram.AddrOf(&in.names[i])
		one, ok := s.parse(from, data, in.controls[i][:in.headers[i].Controllen])
		if ok {
			in.list = append(in.list, one)
		}
	}
	return in.list, nil
}

// parse takes a packet out of what the socket gave: with the header of IPv4, or
// behind that of IPv6.
func (s *socket) parse(from netip.Addr, data, control []byte) (a arrival, ok bool) {
	a.from = from
	var headers [infiniband.HeadersIPv6]byte
	var udp []byte
	n := s.headersLen()
	if s.addr.Is4() {
		h := wire.IPv4(data)
		// One with options, or a fragment, is none of RoCE's.
		if !h.Valid() || h.HeaderLength() != wire.IPv4MinLen || int(h.TotalLength()) > len(data) {
			return a, false
		}
		udp = data[wire.IPv4MinLen:h.TotalLength()]
		a.marked = h.ECN() == wire.CE
		copy(headers[:], data[:min(n, len(data))])
	} else {
		udp = data
		a.marked = trafficClass(control)&3 == 3
		to := s.addr.As16()
		wire.IPv6(headers[:]).Encode(&wire.IPv6Fields{PayloadLength: uint16(len(udp)), NextHeader: wire.ProtocolUDP, Src: from.As16(), Dst: to})
		copy(headers[wire.IPv6Len:], udp[:min(wire.UDPLen, len(udp))])
	}
	h := wire.UDP(udp)
	if !h.Valid() || int(h.Length()) != len(udp) {
		return a, false
	}
	a.packet = infiniband.Packet(udp[wire.UDPLen:])
	if !a.packet.Valid() {
		return a, false
	}
	if !a.packet.ICRCValid(headers[:n]) {
		s.badICRC.Add(1)
		return a, false
	}
	// Of another partition it is nobody's here (IBTA 10.9.1.1; we are a full member).
	return a, (a.packet.BTH().PKey()^infiniband.PKey)&^fullMember == 0
}

// trafficClass reads the control message of IPV6_RECVTCLASS.
func trafficClass(control []byte) int32 {
	if len(control) < unix.SizeofCmsghdr+4 {
		return 0
	}
	return *(*int32)(unsafe.Pointer(&control[unix.SizeofCmsghdr]))
}

// room is memory for the next packet to send, nil where the batch is full.
func (s *socket) room() infiniband.Packet {
	if s.out.count == batch {
		return nil
	}
	return s.out.buffers[s.out.count*s.out.size:][s.headersLen():s.out.size]
}

// add puts the packet that was written into room, which is n bytes long, into the
// batch: with its headers and ICRC.
func (s *socket) add(to netip.Addr, sourcePort uint16, n int) {
	o := &s.out
	whole := o.buffers[o.count*o.size:][:s.headersLen()+n]
	headers, p := whole[:s.headersLen()], infiniband.Packet(whole[s.headersLen():])
	// Packets without data are not to be marked: nobody would send fewer of them.
	class, ecn := s.dscp, wire.NotECT
	switch o := p.Opcode(); {
	case o == infiniband.CNP:
		class = dscpCNP
	case o.HasPayload() && o.Service() == infiniband.RC:
		ecn = wire.ECT0
	}
	length := wire.UDPLen + n
	if s.addr.Is4() {
		if s.id++; s.id == 0 { // the kernel writes its own in place of 0
			s.id = 1
		}
		wire.IPv4(headers).Encode(&wire.IPv4Fields{
			DSCP: class, ECN: ecn, TotalLength: uint16(wire.IPv4MinLen + length), ID: s.id, DontFragment: true, TTL: ttl, Protocol: wire.ProtocolUDP, Src: s.addr.As4(), Dst: to.As4(),
		})
	} else {
		wire.IPv6(headers).Encode(&wire.IPv6Fields{
			DSCP: class, ECN: ecn, PayloadLength: uint16(length), NextHeader: wire.ProtocolUDP, HopLimit: ttl, Src: s.addr.As16(), Dst: to.As16(),
		})
	}
	wire.UDP(headers[len(headers)-wire.UDPLen:]).Encode(&wire.UDPFields{SrcPort: sourcePort, DstPort: infiniband.Port, Length: uint16(length)})
	p.Seal(headers)
	o.names[o.count] = datagram.NameOf(to, 0)
	o.vectors[o.count].SetLen(len(whole))
	o.count++
}

// send sends what of the batch the NIC's queue has room for. What has not gone is
// the first of the next call: an RDMA NIC loses nothing of its own.
func (s *socket) send() error {
	o := &s.out
	for o.first < o.count {
		n, errno := datagram.Send(s.raw, o.headers[o.first:o.count])
		o.first += n
		switch errno {
		case 0:
		case unix.EAGAIN:
			return nil
		case unix.EMSGSIZE:
			o.first++ // longer than the link allows now: lost
		default:
			return fmt.Errorf("send: %w", errno)
		}
	}
	o.first, o.count = 0, 0
	return nil
}

// yield lets others have the processor.
func (s *socket) yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// sourcePort is that of a queue pair's packets: the same for all, so that they
// take one path (rdma_rxe has such ones, too).
func sourcePort(number infiniband.QPN) uint16 {
	const golden = 0x61C88647 // of hash_32 in linux/hash.h
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(number))
	return 0xC000 | uint16(binary.LittleEndian.Uint32(b[:])*golden>>18)&0x3FFF
}

// close gives back what the socket has.
func (s *socket) close() error {
	var errs []error
	if s.waiter != nil {
		errs = append(errs, s.waiter.Close())
	}
	for _, fd := range []int{s.raw, s.quiet, s.claim} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	s.waiter, s.raw, s.quiet, s.claim = nil, -1, -1, -1
	return errors.Join(errs...)
}
