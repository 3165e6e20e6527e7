package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports/datagram"
)

const (
	// blockBits is the number of bits of a queue pair's number that its socket chooses freely. The
	// other bits are the socket's own at its address, so that several processes can share the
	// address.
	blockBits  = 12
	blocks     = 1 << (24 - blockBits)
	ttl        = 64
	dscpCNP    = 48     // as ConnectX sends it
	fullMember = 0x8000 // of a P_Key
)

// socket is a RoCEv2 port. A packet socket receives, because the ICRC covers the IP header. UDP
// sockets send data, because the kernel then cuts many packets out of one message. A raw socket
// sends the rest.
type socket struct {
	addr  netip.Addr
	dscp  uint8
	raw   int // sends with own headers, receives nothing
	quiet int // a UDP socket that keeps the port reachable for the kernel
	claim int // an abstract name that holds the block
	block uint32
	ring  *ring
	nic   *datagram.NIC // nil without kernel bypass
	put   int           // packets since the last send that take its queue
	full  bool          // its queue had no room for a packet of this round
	id    uint16

	waiter *datagram.Waiter
	in     incoming
	out    outgoing

	bound   bool // to a NIC
	badICRC atomic.Uint64
}

// openSocket claims a block of queue pairs at the address, the given one or else the next free one.
// mtu is the most payload of a packet. It needs the right to open raw and packet sockets
// (CAP_NET_RAW).
func openSocket(c *DeviceConfig, mtu int) (s *socket, err error) {
	addr, nic := c.Addr, c.NIC
	s = &socket{addr: addr, dscp: c.DSCP, block: c.block, raw: -1, quiet: -1, claim: -1}
	for i := range s.out.senders {
		s.out.senders[i].fd = -1
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.take(); err != nil {
		return nil, err
	}
	if s.raw, err = unix.Socket(s.family(), unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_RAW); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	if err := s.prepare(nic); err != nil {
		return nil, fmt.Errorf("prepare raw socket: %w", err)
	}
	if !s.bound {
		nic = ""
	}
	if err := errors.Join(s.keepQuiet(), s.openSenders(nic)); err != nil {
		return nil, err
	}
	if s.ring, err = openRing(addr, nic, s.most(mtu), filterOf(addr, s.block)); err != nil {
		return nil, err
	}
	wake := []int{s.ring.fd}
	if c.Bypass {
		if s.nic, err = s.openNIC(c.NIC, mtu); err != nil {
			return nil, err
		}
		wake = append(wake, s.nic.Bell())
	}
	if s.waiter, err = datagram.NewWaiter(wake...); err != nil {
		return nil, err
	}
	s.memory(mtu)
	return s, nil
}

func (s *socket) family() int {
	if s.addr.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (s *socket) headersLen() int {
	if s.addr.Is6() {
		return infiniband.HeadersIPv6
	}
	return infiniband.HeadersIPv4
}

// name returns the address with a port, as system calls take it.
func (s *socket) name(port int) unix.Sockaddr {
	if s.addr.Is6() {
		return &unix.SockaddrInet6{Addr: s.addr.As16(), Port: port}
	}
	return &unix.SockaddrInet4{Addr: s.addr.As4(), Port: port}
}

// take claims a block that is free in this network. It binds an abstract name of a Unix socket,
// which belongs to the network and disappears with its process. If no block is given, it claims a
// random one.
func (s *socket) take() (err error) {
	if s.claim, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open unix socket: %w", err)
	}
	asked := s.block
	for n := range uint32(100) {
		if s.block = 1 + (asked+n-1)%(blocks-1); asked == 0 {
			s.block = 1 + rand.Uint32N(blocks-1)
		}
		err = unix.Bind(s.claim, &unix.SockaddrUnix{Name: fmt.Sprintf("@railbed-roce-%v-%d", s.addr,
			s.block)})
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("take a block of queue pairs: %w", err)
	}
	return nil
}

// number returns the number of one of the socket's queue pairs.
func (s *socket) number(n uint32) infiniband.QPN {
	return infiniband.QPN(s.block<<blockBits | n&(1<<blockBits-1))
}

// prepare binds the raw socket. The socket's protocol only sends, with headers of its own.
func (s *socket) prepare(nic string) error {
	if nic != "" {
		bound := unix.BindToDevice(s.raw, nic)
		if s.bound = bound == nil; !s.bound && !errors.Is(bound, unix.EPERM) {
			return fmt.Errorf("bind to device %s: %w", nic, bound)
		}
	}
	return unix.Bind(s.raw, s.name(0))
}

// keepQuiet opens the UDP socket that discards everything. The kernel's own RoCE, if it has the
// port, has the same effect.
func (s *socket) keepQuiet() (err error) {
	if s.quiet, err = unix.Socket(s.family(), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_UDP); err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(s.quiet, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		takeNothing(s.quiet))
	// else the kernel would cut packets for a socket that discards them
	_ = unix.SetsockoptInt(s.quiet, unix.SOL_UDP, unix.UDP_GRO, 1)
	if bound := unix.Bind(s.quiet, s.name(infiniband.Port)); bound != nil &&
		!errors.Is(bound, unix.EADDRINUSE) {
		err = errors.Join(err, bound)
	}
	if err != nil {
		return fmt.Errorf("occupy UDP port %d: %w", infiniband.Port, err)
	}
	return nil
}

// takeNothing makes a socket receive nothing.
func takeNothing(fd int) error {
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing})
}

// wait returns once a packet has arrived, the NIC's queue has room again, or the waiter has another reason.
// After packets came it may wait for several.
func (s *socket) wait(c *clock.Clock, deadline clock.Time, came bool) {
	packets := 1
	if came && s.nic != nil {
		packets, deadline = awaits, min(deadline, c.Now().Add(mostAwait))
	}
	if s.full { // packets are due, but have to wait
		deadline = c.Now().Add(datagram.FullWait)
	}
	waits := (s.nic == nil || s.nic.Rest(packets, s.full)) && s.waiter.Arm(c, deadline)
	if waits {
		s.waiter.Wait()
		s.ring.clearError()
	}
	if s.nic != nil {
		s.nic.Wake(waits && s.waiter.Readable(s.nic.Bell()))
	}
}

// yield yields the processor to other threads.
func (s *socket) yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// sourcePort is the source port of a queue pair's packets. All packets have the same, so that they
// take one path (as with rdma_rxe).
func sourcePort(number infiniband.QPN) uint16 {
	const golden = 0x61C88647 // from hash_32 in linux/hash.h
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(number))
	return 0xC000 | uint16(binary.LittleEndian.Uint32(b[:])*golden>>18)&0x3FFF
}

// close closes the socket's descriptors.
func (s *socket) close() error {
	var errs []error
	if s.waiter != nil {
		errs = append(errs, s.waiter.Close())
	}
	if s.ring != nil {
		errs = append(errs, s.ring.close())
	}
	if s.nic != nil {
		errs = append(errs, s.nic.Close())
	}
	fds := []int{s.raw, s.quiet, s.claim}
	for i := range s.out.senders {
		one := &s.out.senders[i]
		if one.fd != s.raw {
			fds = append(fds, one.fd)
		}
		one.fd = -1
	}
	for _, fd := range fds {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	// The waiter stays set: a caller that changes something while the worker ends may still wake
	// it. The ring stays set too: its count of lost packets can be read after the close.
	s.raw, s.quiet, s.claim = -1, -1, -1
	return errors.Join(errs...)
}
