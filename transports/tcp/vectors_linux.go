package tcp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/transports"
)

// quick is how many bytes a system call on a socket may move without the scheduler's knowledge.
// Sockets do not block, and so few bytes are copied in microseconds. If the scheduler knows of a
// system call, its monitor checks every 20 us whether to take the processor from the caller. In a
// process with one processor it does.
const quick = 64 << 10

// vectors describe memory as the kernel takes it.
type vectors []unix.Iovec

func (v *vectors) add(b []byte) {
	if len(b) == 0 {
		return
	}
	one := unix.Iovec{Base: unsafe.SliceData(b)}
	one.SetLen(len(b))
	*v = append(*v, one)
}

// call makes a readv or writev of at most so many bytes.
func (v vectors) call(trap, fd uintptr, bytes int) (int, error) {
	if len(v) == 0 {
		return 0, nil
	}
	call := unix.RawSyscall
	if bytes > quick {
		call = unix.Syscall
	}
	n, _, errno := call(trap, fd, uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// past returns the vectors after the first n bytes.
func (v vectors) past(n int) vectors {
	for len(v) > 0 && uint64(n) >= v[0].Len {
		n -= int(v[0].Len)
		v = v[1:]
	}
	if n > 0 {
		v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
		v[0].SetLen(int(v[0].Len) - n)
	}
	return v
}

// sink writes to a connection.
type sink struct {
	raw   syscall.RawConn
	total *atomic.Uint64 // bytes written

	memory      vectors
	attemptFunc func(fd uintptr) bool
	left        vectors
	bytes       int // left to write
	err         error
}

func newSink(conn *net.TCPConn, total *atomic.Uint64) (*sink, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &sink{raw: raw, total: total}
	s.attemptFunc = s.attempt
	return s, nil
}

// write writes all pieces, of which there are at most 1,024 (UIO_MAXIOV).
func (s *sink) write(pieces ...[]byte) error {
	s.memory, s.bytes, s.err = s.memory[:0], 0, nil
	for _, piece := range pieces {
		s.memory.add(piece)
		s.bytes += len(piece)
	}
	s.left = s.memory
	transports.BeforeWrite()
	err := s.raw.Write(s.attemptFunc)
	clear(s.memory)
	return errors.Join(err, s.err)
}

// attempt writes until all is written, or returns false if the socket is full.
func (s *sink) attempt(fd uintptr) bool {
	for s.bytes > 0 {
		n, err := s.left.call(unix.SYS_WRITEV, fd, s.bytes)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			s.err = err
			return true
		}
		s.total.Add(uint64(n))
		s.left, s.bytes = s.left.past(n), s.bytes-n
	}
	return true
}
