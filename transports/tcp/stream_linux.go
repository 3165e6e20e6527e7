package tcp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"railbed/transports"
)

// readAhead is how many bytes are read beyond the needed ones in one system call, so that small
// messages share reads.
const readAhead = 16 << 10

// stream reads a connection. Headers go through a small buffer. Payload goes straight into its
// region, and the bytes after it are read in the same system call. The stream waits for as many
// bytes as it needs instead of for any byte (SO_RCVLOWAT), because on a busy machine the wake-ups
// cost more than the copies.
type stream struct {
	conn  *net.TCPConn
	raw   syscall.RawConn
	total *atomic.Uint64 // bytes read
	// beforeWait is called each time the socket is empty, before waiting.
	beforeWait func() error

	buf        [readAhead]byte
	start, end int
	lowWater   int // as set on the socket

	// Arguments and results of attempt, which becomes a func value once.
	attemptFunc func(fd uintptr) bool
	into        vectors
	bytes       int
	need        int
	got         int
	err         error
}

func newStream(conn *net.TCPConn, total *atomic.Uint64, beforeWait func() error) (*stream, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn, raw: raw, total: total, beforeWait: beforeWait, lowWater: 1}
	s.attemptFunc = s.attempt
	return s, nil
}

// attempt reads once. It returns false to make the caller wait until the socket has need bytes or
// ended.
func (s *stream) attempt(fd uintptr) bool {
	for {
		s.got, s.err = s.into.call(unix.SYS_READV, fd, s.bytes)
		switch {
		case errors.Is(s.err, unix.EINTR):
		case !errors.Is(s.err, unix.EAGAIN):
			if s.got == 0 && s.err == nil {
				s.err = io.EOF
			}
			return true
		case s.lowWater != s.need:
			// More may have arrived in between, so read again.
			s.lowWater = s.need
			if s.err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, s.need); s.err != nil {
				return true
			}
		default:
			if s.err = s.beforeWait(); s.err != nil {
				return true
			}
			return false
		}
	}
}

const (
	// leastLowWater is the need from which on waiting for all of it pays. Fewer bytes arrive in few
	// packets, and setting the low-water mark takes as long as a wake-up.
	leastLowWater = 32 << 10
	// maxLowWater keeps the receive buffer within the kernel's limits for any connection. The
	// kernel makes the buffer twice as large as the low-water mark.
	maxLowWater = 256 << 10
)

// fill reads into payload and then into the free part of the buffer; after large payload it reads
// at most a header's length. It waits until need bytes are there, but may return with fewer.
func (s *stream) fill(payload []byte, need int) (int, error) {
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	s.into = s.into[:0]
	s.into.add(payload)
	ahead := s.buf[s.end:]
	if len(payload) >= leastLowWater {
		// The following message is likely as large, and all of it but the header would be copied
		// once more.
		ahead = ahead[:min(len(ahead), headerLen)]
	}
	s.into.add(ahead)
	s.bytes = len(payload) + len(ahead)
	if s.need, s.got = 1, 0; need >= leastLowWater {
		s.need = min(need, maxLowWater)
	}
	err := s.raw.Read(s.attemptFunc)
	if err == nil {
		err = s.err
	}
	clear(s.into)
	s.total.Add(uint64(s.got))
	transports.AfterRead()
	placed := min(s.got, len(payload))
	s.end += s.got - placed
	return placed, err
}

// peek returns the next n bytes without consuming them. If the stream ends between messages, the
// error is io.EOF.
func (s *stream) peek(n int) ([]byte, error) {
	if s.start+n > len(s.buf) {
		s.end = copy(s.buf[:], s.buf[s.start:s.end])
		s.start = 0
	}
	for s.end-s.start < n {
		if _, err := s.fill(nil, n-(s.end-s.start)); err != nil {
			if errors.Is(err, io.EOF) && s.end > s.start {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return s.buf[s.start : s.start+n], nil
}

func (s *stream) skip(n int) { s.start += n }

// readFull reads exactly len(to) bytes.
func (s *stream) readFull(to []byte) error {
	n := copy(to, s.buf[s.start:s.end])
	s.skip(n)
	for to = to[n:]; len(to) > 0; to = to[n:] {
		var err error
		if n, err = s.fill(to, len(to)); err != nil {
			return err
		}
	}
	return nil
}

// discard reads n bytes and drops them.
func (s *stream) discard(n int) error {
	for n > 0 {
		if _, err := s.peek(1); err != nil {
			return err
		}
		past := min(n, s.end-s.start)
		s.skip(past)
		n -= past
	}
	return nil
}
