package aggregation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"railbed/transports/datagram"
)

const (
	// heldUp is the delay from which a late read counts as a stopped process: the worker was not
	// waiting for the datagram. A shorter delay may come from the host's scheduler.
	heldUp = 20 * time.Millisecond
	// most is the most datagrams that a system call moves.
	most = 32
)

// socket moves datagrams between a worker and its switch. It moves those that are ready with one
// system call. Its methods are not safe for concurrent use.
type socket struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	armed time.Time // the read deadline; zero if none is set
	idle  time.Duration

	in, out batch
	// The callbacks of conn's system calls and their results: made once, so that no call allocates.
	reading, writing  func(fd uintptr) bool
	read              int
	written, gathered int
	errno             unix.Errno
}

// batch is the memory of one direction.
type batch struct {
	headers [most]datagram.Header
	vectors [most]unix.Iovec
	control [most][64]byte // for a datagram's time of arrival
	data    [most][]byte
}

// newSocket makes a socket for datagrams of at most longest bytes. A longer datagram is cut to
// longest + 1 bytes.
func newSocket(conn *net.UDPConn, longest int) (*socket, error) {
	s := &socket{conn: conn}
	var err error
	if s.raw, err = conn.SyscallConn(); err != nil {
		return nil, err
	}
	// The kernel stamps datagrams as they arrive.
	var set error
	err = s.raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err = errors.Join(err, set); err != nil {
		return nil, fmt.Errorf("request time stamps of arrivals: %w", err)
	}
	for _, b := range []*batch{&s.in, &s.out} {
		for i := range b.headers {
			b.data[i] = make([]byte, longest+1)
			b.vectors[i].Base = &b.data[i][0]
			b.headers[i].Iov = &b.vectors[i]
			b.headers[i].SetIovlen(1)
		}
	}
	for i := range s.in.headers {
		s.in.vectors[i].SetLen(longest + 1)
		s.in.headers[i].Control = &s.in.control[i][0]
	}
	s.reading = func(fd uintptr) bool {
		s.read, s.errno = datagram.Receive(int(fd), s.in.headers[:])
		return s.read > 0 || s.errno != 0
	}
	s.writing = func(fd uintptr) bool {
		var n int
		n, s.errno = datagram.Send(int(fd), s.out.headers[s.written:s.gathered])
		s.written += n
		return s.errno != unix.EAGAIN
	}
	return s, nil
}

// until sets the time at which receive times out. An earlier deadline that is already set stays.
func (s *socket) until(deadline time.Time) error {
	if !s.armed.IsZero() && !deadline.Before(s.armed) {
		return nil
	}
	s.armed = deadline
	return s.conn.SetReadDeadline(deadline)
}

// receive waits for datagrams, at most until the deadline, and returns how many arrived. received
// returns them until the next call. waited returns the time of all its waits: until the first
// datagram or the deadline, not until the process ran again.
func (s *socket) receive() (n int, err error) {
	s.read = 0
	for i := range s.in.headers {
		s.in.headers[i].SetControllen(len(s.in.control[i]))
	}
	begin := time.Now()
	if err = s.raw.Read(s.reading); err == nil && s.errno != 0 {
		s.read, err = 0, s.errno
	}
	end := time.Now()
	ready := end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		ready, s.armed = s.armed, time.Time{}
	} else if at, stamped := s.arrival(); stamped {
		ready = at
	}
	s.idle += idleUntil(begin, end, ready)
	return s.read, err
}

// poll is as receive, but does not wait.
func (s *socket) poll() (n int, err error) {
	s.read = 0
	for i := range s.in.headers {
		s.in.headers[i].SetControllen(len(s.in.control[i]))
	}
	if err = s.raw.Control(func(fd uintptr) { s.reading(fd) }); err == nil && s.errno != 0 {
		s.read, err = 0, s.errno
	}
	return s.read, err
}

// idleUntil is the idle time of a wait for something that was ready at a time.
func idleUntil(begin, end, ready time.Time) time.Duration {
	if end.Sub(ready) < heldUp {
		ready = end
	}
	return max(0, ready.Sub(begin))
}

func (s *socket) waited() time.Duration { return s.idle }

// interrupt ends receive. It is safe for concurrent use.
func (s *socket) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) } // fails only once closed

func (s *socket) close() error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// received returns datagram i of the last receive.
func (s *socket) received(i int) []byte { return s.in.data[i][:s.in.headers[i].N] }

// arrival is when the first datagram arrived, by the kernel's clock. The only control message has
// 64 bits of seconds and 64 bits of nanoseconds.
func (s *socket) arrival() (time.Time, bool) {
	if s.read == 0 {
		return time.Time{}, false
	}
	header, data, _, err := unix.ParseOneSocketControlMessage(s.in.control[0][:s.in.headers[0].Controllen])
	if err != nil || header.Level != unix.SOL_SOCKET || header.Type != unix.SO_TIMESTAMPNS || len(data) < 16 {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:]))),
		true
}

// send sends the messages that next returns, up to the first nil. Each message is valid until the
// next call of next. Messages that the network refuses are lost.
func (s *socket) send(next func() []byte) error {
	for {
		s.written, s.gathered = 0, 0
		for s.gathered < most {
			message := next()
			if message == nil {
				break
			}
			s.out.vectors[s.gathered].SetLen(copy(s.out.data[s.gathered], message))
			s.gathered++
		}
		if s.gathered == 0 {
			return nil
		}
		if err := s.raw.Write(s.writing); err != nil {
			return err
		}
		if s.errno != 0 {
			return s.errno
		}
	}
}
