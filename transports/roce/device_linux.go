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
	// blockBits are those of a queue pair's number that its device chooses freely.
	// The others are the device's own at its address, so that several processes can
	// share it.
	blockBits = 12
	blocks    = 1 << (24 - blockBits)
	// wantedRoom is the receive buffer that the socket asks for.
	wantedRoom = 8 << 20
	ttl        = 64
	dscpCNP    = 48 // as ConnectX sends it
)

// device is a RoCEv2 port: a raw socket, because the ICRC covers the header of IP,
// and what keeps others from answering in its place.
type device struct {
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

// openDevice takes a block of queue pairs at the address, for packets with so much
// payload. It needs the right to open raw sockets (CAP_NET_RAW).
func openDevice(c *Config, mtu int) (d *device, err error) {
	d = &device{addr: c.Addr, dscp: c.DSCP, raw: -1, quiet: -1, claim: -1}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.take(); err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if c.Addr.Is6() {
		family = unix.AF_INET6
	}
	if d.raw, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	if err := d.prepare(c.Device); err != nil {
		return nil, fmt.Errorf("prepare raw socket: %w", err)
	}
	if err := d.keepQuiet(family); err != nil {
		return nil, err
	}
	if d.waiter, err = datagram.NewWaiter(d.raw); err != nil {
		return nil, err
	}
	d.memory(mtu)
	return d, nil
}

// take finds a block that nobody has in this network: an abstract name of a unix
// socket belongs to a network, and goes with its process.
func (d *device) take() (err error) {
	if d.claim, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open unix socket: %w", err)
	}
	for range 100 {
		d.block = 1 + rand.Uint32N(blocks-1)
		err = unix.Bind(d.claim, &unix.SockaddrUnix{Name: fmt.Sprintf("@railbed-roce-%v-%d", d.addr, d.block)})
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("take a block of queue pairs: %w", err)
	}
	return nil
}

// number is the number of one of the device's queue pairs.
func (d *device) number(n uint32) infiniband.QPN {
	return infiniband.QPN(d.block<<blockBits | n&(1<<blockBits-1))
}

// prepare sets the raw socket up: headers of its own, packets of the device's
// queue pairs and of the general services alone.
func (d *device) prepare(nic string) error {
	v6 := d.addr.Is6()
	level, own := unix.IPPROTO_IP, unix.IP_HDRINCL
	if v6 {
		level, own = unix.IPPROTO_IPV6, ipv6HdrIncl
	}
	err := unix.SetsockoptInt(d.raw, level, own, 1)
	if v6 {
		err = errors.Join(err, unix.SetsockoptInt(d.raw, level, unix.IPV6_RECVTCLASS, 1))
	}
	if unix.SetsockoptInt(d.raw, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wantedRoom) != nil {
		_ = unix.SetsockoptInt(d.raw, unix.SOL_SOCKET, unix.SO_RCVBUF, wantedRoom) // less only costs speed
	}
	filter := d.filter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = errors.Join(err, unix.SetsockoptSockFprog(d.raw, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if nic != "" {
		bound := unix.BindToDevice(d.raw, nic)
		if d.bound = bound == nil; !d.bound && !errors.Is(bound, unix.EPERM) {
			err = errors.Join(err, fmt.Errorf("bind to device %s: %w", nic, bound))
		}
	}
	var name unix.Sockaddr
	if v6 {
		name = &unix.SockaddrInet6{Addr: d.addr.As16()}
	} else {
		name = &unix.SockaddrInet4{Addr: d.addr.As4()}
	}
	return errors.Join(err, unix.Bind(d.raw, name))
}

// ipv6HdrIncl is IPV6_HDRINCL of linux/in6.h.
const ipv6HdrIncl = 36

// filter is the classic BPF program that passes UDP to the port for the device's
// queue pairs and for the general services. Of IPv4 it sees the IP header, too.
func (d *device) filter() []unix.SockFilter {
	const (
		portAt, queuePairAt = 2, wire.UDPLen + 4
	)
	load := unix.SockFilter{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0} // length of the IPv4 header
	if d.addr.Is6() {
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
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: d.block, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xFFFF},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

// keepQuiet opens the UDP socket that takes nothing. Where the kernel's own RoCE
// has the port, that keeps quiet.
func (d *device) keepQuiet(family int) (err error) {
	if d.quiet, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP); err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	program := unix.SockFprog{Len: 1, Filter: &nothing}
	var name unix.Sockaddr
	if d.addr.Is6() {
		name = &unix.SockaddrInet6{Addr: d.addr.As16(), Port: infiniband.Port}
	} else {
		name = &unix.SockaddrInet4{Addr: d.addr.As4(), Port: infiniband.Port}
	}
	err = errors.Join(
		unix.SetsockoptInt(d.quiet, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.SetsockoptSockFprog(d.quiet, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
	if bound := unix.Bind(d.quiet, name); bound != nil && !errors.Is(bound, unix.EADDRINUSE) {
		err = errors.Join(err, bound)
	}
	if err != nil {
		return fmt.Errorf("keep UDP port %d quiet: %w", infiniband.Port, err)
	}
	return nil
}

// memory makes room for packets.
func (d *device) memory(mtu int) {
	size := d.headersLen() + mtu + infiniband.MaxOverhead
	size = (max(size, d.headersLen()+infiniband.Len(infiniband.UDSendOnly, infiniband.MADLen)) + 127) &^ 63
	d.in.size, d.in.buffers = size+wire.IPv4MaxLen, make([]byte, batch*(size+wire.IPv4MaxLen))
	d.out.size, d.out.buffers = size, make([]byte, batch*size)
	for i := range batch {
		in, out := &d.in.headers[i], &d.out.headers[i]
		d.in.vectors[i].Base = &d.in.buffers[i*d.in.size]
		d.in.vectors[i].SetLen(d.in.size)
		in.Name, in.Iov = (*byte)(unsafe.Pointer(&d.in.names[i])), &d.in.vectors[i]
		in.SetIovlen(1)
		d.out.vectors[i].Base = &d.out.buffers[i*size]
		out.Name, out.Namelen, out.Iov = (*byte)(unsafe.Pointer(&d.out.names[i])), datagram.NameLen(d.addr.Is6()), &d.out.vectors[i]
		out.SetIovlen(1)
	}
}

func (d *device) headersLen() int {
	if d.addr.Is6() {
		return infiniband.HeadersIPv6
	}
	return infiniband.HeadersIPv4
}

// receive takes what is there. The list and its packets are good until the next
// call.
func (d *device) receive() ([]arrival, error) {
	in := &d.in
	for i := range in.headers {
		h := &in.headers[i]
		h.Namelen, h.Control = unix.SizeofSockaddrInet6, &in.controls[i][0]
		h.SetControllen(len(in.controls[i]))
	}
	n, errno := datagram.Receive(d.raw, in.headers[:])
	if errno != 0 {
		return nil, fmt.Errorf("receive: %w", errno)
	}
	in.list = in.list[:0]
	for i := range n {
		data := in.buffers[i*in.size:][:in.headers[i].N]
		from := datagram.AddrOf(&in.names[i])
		one, ok := d.parse(from, data, in.controls[i][:in.headers[i].Controllen])
		if ok {
			in.list = append(in.list, one)
		}
	}
	return in.list, nil
}

// parse takes a packet out of what the socket gave: with the header of IPv4, or
// behind that of IPv6.
func (d *device) parse(from netip.Addr, data, control []byte) (a arrival, ok bool) {
	a.from = from
	var headers [infiniband.HeadersIPv6]byte
	var udp []byte
	n := d.headersLen()
	if d.addr.Is4() {
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
		to := d.addr.As16()
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
		d.badICRC.Add(1)
		return a, false
	}
	return a, true
}

// trafficClass reads the control message of IPV6_RECVTCLASS.
func trafficClass(control []byte) int32 {
	if len(control) < unix.SizeofCmsghdr+4 {
		return 0
	}
	return *(*int32)(unsafe.Pointer(&control[unix.SizeofCmsghdr]))
}

// room is memory for the next packet to send, nil where the batch is full.
func (d *device) room() infiniband.Packet {
	if d.out.count == batch {
		return nil
	}
	return d.out.buffers[d.out.count*d.out.size:][d.headersLen():d.out.size]
}

// add puts the packet that was written into room, which is n bytes long, into the
// batch: with its headers and ICRC.
func (d *device) add(to netip.Addr, sourcePort uint16, n int) {
	o := &d.out
	whole := o.buffers[o.count*o.size:][:d.headersLen()+n]
	headers, p := whole[:d.headersLen()], infiniband.Packet(whole[d.headersLen():])
	// Packets without data are not to be marked: nobody would send fewer of them.
	class, ecn := d.dscp, wire.NotECT
	switch o := p.Opcode(); {
	case o == infiniband.CNP:
		class = dscpCNP
	case o.HasPayload() && o.Service() == infiniband.RC:
		ecn = wire.ECT0
	}
	length := wire.UDPLen + n
	if d.addr.Is4() {
		if d.id++; d.id == 0 { // the kernel writes its own in place of 0
			d.id = 1
		}
		wire.IPv4(headers).Encode(&wire.IPv4Fields{
			DSCP: class, ECN: ecn, TotalLength: uint16(wire.IPv4MinLen + length), ID: d.id, DontFragment: true, TTL: ttl, Protocol: wire.ProtocolUDP, Src: d.addr.As4(), Dst: to.As4(),
		})
	} else {
		wire.IPv6(headers).Encode(&wire.IPv6Fields{
			DSCP: class, ECN: ecn, PayloadLength: uint16(length), NextHeader: wire.ProtocolUDP, HopLimit: ttl, Src: d.addr.As16(), Dst: to.As16(),
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
func (d *device) send() error {
	o := &d.out
	for o.first < o.count {
		n, errno := datagram.Send(d.raw, o.headers[o.first:o.count])
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

// sourcePort is that of a queue pair's packets: the same for all, so that they
// take one path (rdma_rxe has such ones, too).
func sourcePort(number infiniband.QPN) uint16 {
	const golden = 0x61C88647 // of hash_32 in linux/hash.h
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(number))
	return 0xC000 | uint16(binary.LittleEndian.Uint32(b[:])*golden>>18)&0x3FFF
}

// close gives back what the device has.
func (d *device) close() error {
	var errs []error
	if d.waiter != nil {
		errs = append(errs, d.waiter.Close())
	}
	for _, fd := range []int{d.raw, d.quiet, d.claim} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	d.waiter, d.raw, d.quiet, d.claim = nil, -1, -1, -1
	return errors.Join(errs...)
}
