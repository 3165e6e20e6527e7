package rd

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/testbed/spec"
	"railbed/transports/order"
	"railbed/transports/rd/engine"
	"railbed/transports/wire"
)

const (
	slots = wire.PortsRD / wire.RDEngines
	// wantedRoom is the receive buffer that a socket asks for; the kernel gives
	// what it allows.
	wantedRoom = 8 << 20
	// ecnCapable is ECT(0), RFC 3168.
	ecnCapable = 2
	// sendWait is how long a full send buffer is waited for. What does not go
	// then is lost, and found to be.
	sendWait = time.Millisecond
)

// socket is what an engine hears with and sends from.
type socket struct {
	hears       int
	paths       []int
	alarm       int // an eventfd that wakes
	timer       int // a timerfd that does
	ready       *readiness
	alarmAt     unix.ItimerSpec
	count       [8]byte
	firstPath   uint16
	deviceBound bool
	v6          bool
	turn        int
	batch       sendBatch
}

// openSockets opens those of all engines in the first free slot of the address.
func openSockets(c *Config) (sockets []*socket, slot int, err error) {
	first, last := 0, slots-1
	if c.Slot >= 0 {
		first, last = c.Slot, c.Slot
	}
	for slot = first; slot <= last; slot++ {
		sockets, err = openSlot(c, slot)
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return sockets, slot, err
}

func openSlot(c *Config, slot int) (sockets []*socket, err error) {
	defer func() {
		if err != nil {
			for _, s := range sockets {
				s.close()
			}
			sockets = nil
		}
	}()
	if slot >= slots {
		return nil, fmt.Errorf("slot %d: want 0 to %d", slot, slots-1)
	}
	for i := range c.Engines {
		s := &socket{hears: -1, alarm: -1, timer: -1, v6: c.Addr.Is6(), firstPath: wire.PortRDPath + uint16(slot*wire.PortsRDPath/slots+i*c.Paths)}
		sockets = append(sockets, s)
		if s.hears, err = s.open(c, wire.PortRD+uint16(slot*wire.RDEngines+i)); err != nil {
			return sockets, err
		}
		if unix.SetsockoptInt(s.hears, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wantedRoom) != nil {
			_ = unix.SetsockoptInt(s.hears, unix.SOL_SOCKET, unix.SO_RCVBUF, wantedRoom) // less only costs speed
		}
		for k := range c.Paths {
			fd, err := s.open(c, s.firstPath+uint16(k))
			if err != nil {
				return sockets, err
			}
			s.paths = append(s.paths, fd)
		}
		if s.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return sockets, fmt.Errorf("open eventfd: %w", err)
		}
		if s.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
			return sockets, fmt.Errorf("open timerfd: %w", err)
		}
		if s.ready, err = newReadiness(s.hears, s.alarm, s.timer); err != nil {
			return sockets, err
		}
		s.batch.init()
	}
	return sockets, nil
}

// open opens one socket and binds it.
func (s *socket) open(c *Config, port uint16) (fd int, err error) {
	family := unix.AF_INET
	if s.v6 {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	level, tos, receive, discover, do := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if s.v6 {
		level, tos, receive, discover, do = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, level, tos, spec.DSCPRd<<2|ecnCapable),
		unix.SetsockoptInt(fd, level, receive, 1),
		unix.SetsockoptInt(fd, level, discover, do), // a packet is one packet, or none
	)
	if s.v6 {
		err = errors.Join(err, unix.SetsockoptInt(fd, level, unix.IPV6_V6ONLY, 1))
	}
	if err == nil && c.Device != "" {
		bound := unix.BindToDevice(fd, c.Device)
		s.deviceBound = bound == nil
		if bound != nil && !errors.Is(bound, unix.EPERM) {
			err = fmt.Errorf("bind to device %s: %w", c.Device, bound)
		}
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(c.Addr, port)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind UDP port %d: %w", port, err)
	}
	return fd, nil
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}

// room is how many packets with so much payload wait in the socket: what the
// kernel charges for one is its memory, a power of two, and some 256 bytes of
// its own (alloc_skb, SKB_TRUESIZE).
func (s *socket) room(payload int) int {
	const (
		bookkeeping = 256
		shared      = 320 + 128 // skb_shared_info and headroom
	)
	size, err := unix.GetsockoptInt(s.hears, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	each := 1<<bits.Len(uint(payload+wire.RDDataLen+shared-1)) + bookkeeping
	return size / each
}

// rawSockaddr is an address as system calls take it.
type rawSockaddr = unix.RawSockaddrInet6

// raw is the address, without a port.
func (a address) raw() rawSockaddr { return rawAddr(a.at, 0) }

// rawAddr is an address as system calls take it; an IPv4 one has its first 16
// bytes.
func rawAddr(at netip.Addr, port uint16) (raw unix.RawSockaddrInet6) {
	if at.Is4() {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(&raw))
		four.Family, four.Addr, four.Port = unix.AF_INET, at.As4(), bits.ReverseBytes16(port)
		return raw
	}
	raw.Family, raw.Addr, raw.Port = unix.AF_INET6, at.As16(), bits.ReverseBytes16(port)
	return raw
}

func (s *socket) addrLen() uint32 {
	if s.v6 {
		return unix.SizeofSockaddrInet6
	}
	return unix.SizeofSockaddrInet4
}

// wake ends a wait, or the next one.
func (s *socket) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(s.alarm, one[:]) // a full counter wakes as well
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	n uint32
	_ [4]byte
}

// arrivals is memory for what one call receives.
type arrivals struct {
	list     []engine.Arrival
	headers  []mmsghdr
	vectors  []unix.Iovec
	names    []unix.RawSockaddrInet6
	controls [][controlLen]byte
	buffers  []byte
	size     int
}

// controlLen is room for the one control message that is asked for.
const controlLen = 32

func newArrivals(n, size int) *arrivals {
	a := &arrivals{
		list: make([]engine.Arrival, n), headers: make([]mmsghdr, n), vectors: make([]unix.Iovec, n), names: make([]unix.RawSockaddrInet6, n),
		controls: make([][controlLen]byte, n), buffers: make([]byte, n*size), size: size,
	}
	for i := range n {
		a.vectors[i].Base = &a.buffers[i*size]
		a.vectors[i].SetLen(size)
		h := &a.headers[i].Msghdr
		h.Name = (*byte)(unsafe.Pointer(&a.names[i]))
		h.Iov = &a.vectors[i]
		h.SetIovlen(1)
		h.Control = &a.controls[i][0]
	}
	return a
}

// receive takes what is there. This call and those of wait and send never wait,
// and are made without telling Go's runtime: it would wake its monitor each time,
// which took a third of the CPU time on a slow link.
func (s *socket) receive(a *arrivals) (int, error) {
	for i := range a.headers {
		a.headers[i].Namelen = unix.SizeofSockaddrInet6
		a.headers[i].SetControllen(controlLen)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.hears), uintptr(unsafe.Pointer(&a.headers[0])), uintptr(len(a.headers)), 0, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	default:
		return 0, fmt.Errorf("receive: %w", errno)
	}
	order.AfterRead()
	for i := range int(n) {
		h := &a.headers[i]
		data := a.buffers[i*a.size:][:h.n:h.n]
		if block := wire.INT(data); len(data) > 0 && data[0]&0x80 == 0 && block.Valid() {
			data = data[block.Len():]
		}
		arrival := engine.Arrival{Data: data, Path: bits.ReverseBytes16(a.names[i].Port), Marked: marked(&a.controls[i], int(h.Controllen))}
		if s.v6 {
			arrival.From = netip.AddrFrom16(a.names[i].Addr)
		} else {
			arrival.From = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&a.names[i])).Addr)
		}
		a.list[i] = arrival
	}
	return int(n), nil
}

// marked says that a packet came with congestion experienced: the lowest bits
// of the type of service or traffic class, in a byte or a number of the host's
// order.
func marked(control *[controlLen]byte, length int) bool {
	if length < unix.SizeofCmsghdr+1 {
		return false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(control))
	value := control[unix.SizeofCmsghdr]
	if h.Level == unix.IPPROTO_IPV6 {
		value = byte(*(*int32)(unsafe.Pointer(&control[unix.SizeofCmsghdr])))
	}
	return value&3 == 3
}
