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
	// heldUp is how late a worker reads what came that was no longer waiting for it: its process
	// was stopped. Up to that the host may have run somebody else, which is nobody's fault.
	heldUp = 20 * time.Millisecond
	// most is how many datagrams a system call moves.
	most = 32
)

// socket moves datagrams between a worker and its switch, those that are there at once by one
// system call. Its methods are not safe for concurrent use.
type socket struct {
	conn   *net.UDPConn
	raw    syscall.RawConn
	armed  time.Time // the deadline of reading, zero where there is none to come
	waited time.Duration

	in, out batch
	// Of the calls that go on: made once, so that nothing is allocated for each.
	reading, writing  func(fd uintptr) bool
	read              int
	written, gathered int
	errno             unix.Errno
}

// batch is the memory of one direction.
type batch struct {
	headers [most]datagram.Header
	vectors [most]unix.Iovec
	control [most][64]byte // for the time at which a datagram came
	data    [most][]byte
}

// newSocket is one for datagrams of so many bytes at most; longer ones that come are cut, one byte
// longer than that.
func newSocket(conn *net.UDPConn, longest int) (*socket, error) {
	s := &socket{conn: conn}
	var err error
	if s.raw, err = conn.SyscallConn(); err != nil {
		return nil, err
	}
	// The kernel says when datagrams come.
	var set error
	err = s.raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err = errors.Join(err, set); err != nil {
		return nil, fmt.Errorf("have arrivals stamped: %w", err)
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

// until sets when receive gives up at the latest. A deadline that is armed and earlier stays.
func (s *socket) until(deadline time.Time) error {
	if !s.armed.IsZero() && !deadline.Before(s.armed) {
		return nil
	}
	s.armed = deadline
	return s.conn.SetReadDeadline(deadline)
}

// receive waits for datagrams, until the deadline that is armed at the latest, and returns how many
// came: received has them until the next call. It counts how long it had to wait: until the first
// came, or the deadline was there, and not until the process ran again.
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
	if end.Sub(ready) < heldUp {
		ready = end
	}
	s.waited += max(0, ready.Sub(begin))
	return s.read, err
}

// received is what came.
func (s *socket) received(i int) []byte { return s.in.data[i][:s.in.headers[i].N] }

// arrival is when the first came, in the one control message that there is: the kernel's clock, 64
// bits of seconds and of nanoseconds.
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

// send sends the messages that next returns, each valid until the next call, up to the first that
// is nil. What the network refuses is lost.
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
