package rd

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/internal/nicqueue"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/transports/datagram"
)

const (
	slots = wire.PortsRD / wire.RDEngines
	// wantedRoom is the receive buffer in bytes that a socket requests; the kernel may give less.
	wantedRoom = 8 << 20
	// ecnCapable is ECT(0), RFC 3168.
	ecnCapable = 2
)

// socket holds an engine's sockets to receive from and to send from.
type socket struct {
	receiver    int
	paths       []int
	waiter      *datagram.Waiter
	firstPath   uint16
	deviceBound bool
	v6          bool
	joins       bool // a received message may be several datagrams, joined by the kernel
	whole       bool // each message sent is one datagram, because the kernel failed to cut one
	turn        int
	batch       sendBatch
	nic         *datagram.NIC // nil without kernel bypass
	dscp        uint8
	clock       *clock.Clock
	incoming    datagram.Incoming
	readable    bool // the receiver, since it was read
	polls       int  // rounds until it is read anyway
}

// unsolicited matches full data packets without a request to acknowledge them, without encryption and
// without an INT block before them. A worker need not wake for each of them.
func unsolicited(payload int) nicqueue.Match {
	return nicqueue.Match{Mask: 0xFF<<24 | uint32(wire.RDEncrypted|wire.RDAckRequest)<<16,
		Value: uint32(wire.RDFirst(wire.RDData)) << 24, Least: uint16(wire.RDDataLen + payload)}
}

// openSockets opens the sockets of all engines in the first free slot of the address.
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
		s := &socket{receiver: -1, v6: c.Addr.Is6(),
			dscp:      cmp.Or(c.DSCP, spec.DSCPRd),
			clock:     c.Clock,
			firstPath: wire.PortRDPath + uint16(slot*wire.PortsRDPath/slots+i*c.Paths)}
		sockets = append(sockets, s)
		if s.receiver, err = s.open(c, wire.PortRD+uint16(slot*wire.RDEngines+i)); err != nil {
			return sockets, err
		}
		if unix.SetsockoptInt(s.receiver, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, wantedRoom) != nil {
			// a smaller buffer only costs speed
			_ = unix.SetsockoptInt(s.receiver, unix.SOL_SOCKET, unix.SO_RCVBUF, wantedRoom)
		}
		s.joins = unix.SetsockoptInt(s.receiver, unix.SOL_UDP, unix.UDP_GRO, 1) == nil // since Linux 5.0
		for k := range c.Paths {
			fd, err := s.open(c, s.firstPath+uint16(k))
			if err != nil {
				return sockets, err
			}
			s.paths = append(s.paths, fd)
		}
		wake := []int{s.receiver}
		if c.Bypass {
			port := wire.PortRD + uint16(slot*wire.RDEngines+i)
			if s.nic, err = datagram.OpenNIC(datagram.NICOptions{Name: c.Device, Addr: c.Addr, First: port,
				Last: port, Unsolicited: unsolicited(c.payload())}); err != nil {
				return sockets, err
			}
			wake = append(wake, s.nic.Bell())
		}
		if s.waiter, err = datagram.NewWaiter(wake...); err != nil {
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
	level, tos, receive, discover, do := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS, unix.IP_MTU_DISCOVER,
		unix.IP_PMTUDISC_PROBE
	if s.v6 {
		level, tos, receive, discover, do = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS,
			unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, level, tos, int(s.dscp)<<2|ecnCapable),
		unix.SetsockoptInt(fd, level, receive, 1),
		unix.SetsockoptInt(fd, level, discover, do), // a packet is sent whole or not at all
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

// room is how many packets with payload bytes can wait to be received. The kernel
// charges a packet its memory, a power of two, and some 256 bytes of bookkeeping (alloc_skb,
// SKB_TRUESIZE).
func (s *socket) room(payload int) int {
	if s.nic != nil {
		return s.nic.Holds()
	}
	const (
		bookkeeping = 256
		shared      = 320 + 128 // skb_shared_info and headroom
	)
	size, err := unix.GetsockoptInt(s.receiver, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	each := 1<<bits.Len(uint(payload+wire.RDDataLen+shared-1)) + bookkeeping
	return size / each
}

// close closes the descriptors.
func (s *socket) close() error {
	var errs []error
	if s.waiter != nil {
		errs = append(errs, s.waiter.Close())
	}
	if s.nic != nil {
		errs = append(errs, s.nic.Close())
	}
	for _, fd := range append(slices.Clone(s.paths), s.receiver) {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	// The waiter stays set: a caller that posts while the worker ends may still wake it.
	s.paths, s.receiver = nil, -1
	return errors.Join(errs...)
}
