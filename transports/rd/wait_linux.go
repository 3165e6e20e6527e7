package rd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric/clock"
)

// readiness waits for one of some descriptors in Go's own poller: a thread that
// waits in a system call instead makes the runtime look after it every 20 us,
// which cost more CPU than all packets of a slow link. Go's timers wake up to a
// millisecond late, so one of the descriptors is the kernel's timer.
type readiness struct {
	file *os.File // of an epoll instance with the descriptors, which Go's polls
	raw  syscall.RawConn
	look func(fd uintptr) bool
}

func newReadiness(fds ...int) (*readiness, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open epoll: %w", err)
	}
	for _, fd := range fds {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			unix.Close(epoll)
			return nil, fmt.Errorf("watch descriptor: %w", err)
		}
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // else os does not poll it
		unix.Close(epoll)
		return nil, fmt.Errorf("set epoll nonblocking: %w", err)
	}
	r := &readiness{file: os.NewFile(uintptr(epoll), "rd epoll")}
	if r.raw, err = r.file.SyscallConn(); err != nil {
		r.file.Close()
		return nil, fmt.Errorf("poll epoll: %w", err)
	}
	events := new([4]unix.EpollEvent)
	r.look = func(fd uintptr) bool {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		return errno != 0 && errno != unix.EINTR || n > 0
	}
	return r, nil
}

// wait returns once one of them can be read.
func (r *readiness) wait() { _ = r.raw.Read(r.look) } // an error ends the wait, too

// arm makes wait end at a moment of the clock; false if that has come.
func (s *socket) arm(c *clock.Clock, until clock.Time) bool {
	at := &s.alarmAt
	*at = unix.ItimerSpec{} // never
	if until != clock.Never {
		d := c.Wait(until.Sub(c.Now()))
		if d <= 0 {
			return false
		}
		at.Value = unix.NsecToTimespec(int64(d))
	}
	// This also makes it unreadable again.
	_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(s.timer), 0, uintptr(unsafe.Pointer(at)), 0, 0, 0)
	return true
}

// wait waits for a packet, for the moment that is armed, or for wake.
func (s *socket) wait() {
	s.ready.wait()
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(s.alarm), uintptr(unsafe.Pointer(&s.count)), 8)
}

// close closes the descriptors.
func (s *socket) close() error {
	var errs []error
	if s.ready != nil {
		errs = append(errs, s.ready.file.Close())
	}
	for _, fd := range append(slices.Clone(s.paths), s.hears, s.alarm, s.timer) {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	s.ready, s.paths, s.hears, s.alarm, s.timer = nil, nil, -1, -1, -1
	return errors.Join(errs...)
}
