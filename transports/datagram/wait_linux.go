// Package datagram holds the socket code that transports share. It waits for sockets and for a
// moment of the testbed's time, and reads and writes datagrams in batches. Go's net package is no
// substitute: it transfers one datagram a call.
package datagram

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
)

// Waiter waits for one of some descriptors, for a moment, or to be woken, in Go's
// own poller: a thread that waits in a system call instead makes the runtime look
// after it every 20 us, which cost more CPU than all packets of a slow link. Go's
// timers wake up to a millisecond late, so the kernel's timer is one of the
// descriptors. A descriptor is watched during a wait only: each packet that came to
// one that nobody waited for called two instances of epoll, one within the other,
// and woke the thread of Go's poller in vain. A wait for packets alone is two calls of
// its own beside those of Go's poller: who waits knows without a call whether it was
// woken and when the timer goes off, and leaves a timer that goes off a little early. Wait
// belongs to one goroutine at a time, and Arm to one, which may be another.
type Waiter struct {
	file  *os.File // of an epoll instance with the descriptors, which Go's polls
	raw   syscall.RawConn
	look  func(fd uintptr) bool
	first bool // the next look is a wait's first
	// descriptors are watched each until it can be read (EPOLLONESHOT), and so many
	// still are. It is known that epoll remembers nothing of the others: not where they
	// may have stood behind something else that could be read.
	descriptors []unix.EpollEvent
	watched     int
	known       bool
	alarm       int // an eventfd
	woken       atomic.Bool
	waking      sync.RWMutex // Wake writes to the alarm while it reads the lock; Close closes it
	timer       int          // a timerfd
	timerAt     unix.ItimerSpec
	began       time.Time
	goesOff     atomic.Int64 // after began, the earliest that the timer does; never
	count       [8]byte
}

const (
	never = math.MaxInt64
	// seldom is how far from each other ends of waits lie that do not show, though they are
	// for nothing: to move a timer takes a call at each packet.
	seldom = int64(10 * time.Millisecond)
)

// NewWaiter makes a waiter for descriptors, which stay the caller's and are to be
// closed after it.
func NewWaiter(fds ...int) (w *Waiter, err error) {
	w = &Waiter{alarm: -1, timer: -1, began: time.Now()}
	w.goesOff.Store(never)
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("open eventfd: %w", err)
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC,
		unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("open timerfd: %w", err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open epoll: %w", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // else os does not poll it
		unix.Close(epoll)
		return nil, fmt.Errorf("set epoll nonblocking: %w", err)
	}
	w.file = os.NewFile(uintptr(epoll), "epoll")
	all := []unix.EpollEvent{{Events: unix.EPOLLIN, Fd: int32(w.alarm)},
		{Events: unix.EPOLLIN, Fd: int32(w.timer)}}
	for _, fd := range fds {
		all = append(all, unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)})
	}
	w.descriptors, w.watched = all[2:], len(fds)
	for i := range all {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(all[i].Fd), &all[i]); err != nil {
			return nil, fmt.Errorf("watch descriptor: %w", err)
		}
	}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		return nil, fmt.Errorf("poll epoll: %w", err)
	}
	events := make([]unix.EpollEvent, len(all))
	w.look = func(fd uintptr) bool { return w.lookAt(fd, events) }
	return w, nil
}

// lookAt says whether a wait is over. Go's poller tells of what changes from before the
// first look on, so what is the case already is asked for in it. A descriptor that can be
// read when it begins to be watched is told of, too, but not one that was watched before.
func (w *Waiter) lookAt(epoll uintptr, events []unix.EpollEvent) bool {
	if w.first {
		w.first = false
		if w.woken.Load() || w.now() >= w.goesOff.Load() {
			w.known = false
			return true
		}
		for i := range w.descriptors {
			e := &w.descriptors[i]
			_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, epoll, unix.EPOLL_CTL_MOD, uintptr(e.Fd),
				uintptr(unsafe.Pointer(e)), 0, 0)
		}
		none := w.watched == 0 && w.known
		if w.watched = len(w.descriptors); none {
			return false
		}
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return errno != unix.EINTR
	}
	w.known = true
	for _, e := range events[:n] {
		switch int(e.Fd) {
		case w.alarm:
			w.quiet()
		case w.timer:
			w.known = false
		default:
			w.watched--
		}
	}
	return n > 0
}

// quiet ends what Wake began.
func (w *Waiter) quiet() {
	w.known = false
	w.woken.Store(false)
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(w.alarm), uintptr(unsafe.Pointer(&w.count)), 8)
}

func (w *Waiter) now() int64 { return int64(time.Since(w.began)) }

// Arm makes the Wait that is or comes next end at a moment of the clock, or earlier;
// false if that has come.
func (w *Waiter) Arm(c *clock.Clock, until clock.Time) bool {
	now, at := w.now(), int64(never)
	w.timerAt = unix.ItimerSpec{} // never
	if until != clock.Never {
		d := c.Wait(until.Sub(c.Now()))
		if d <= 0 {
			return false
		}
		at = now + int64(d)
		w.timerAt.Value = unix.NsecToTimespec(int64(d))
	}
	if old := w.goesOff.Load(); old <= now || at < old || old-now < min((at-now)/2, seldom) {
		w.goesOff.Store(at) // before it can go off: a wait that begins then would not hear of it
		// This also makes it unreadable again.
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0,
			uintptr(unsafe.Pointer(&w.timerAt)), 0, 0, 0)
	}
	return true
}

// Wait returns once a descriptor can be read, the moment that is armed has come, or
// Wake was called.
func (w *Waiter) Wait() {
	w.first = true
	_ = w.raw.Read(w.look) // an error ends the wait, too
	if w.woken.Load() {
		w.quiet()
	}
}

// Wake ends a Wait, or the next one. It is safe for concurrent use, also beside Close and after it,
// when it does nothing: the alarm's number may be another file's by then.
func (w *Waiter) Wake() {
	w.waking.RLock()
	defer w.waking.RUnlock()
	if w.alarm < 0 {
		return
	}
	w.woken.Store(true)
	one := [8]byte{1}
	_, _ = unix.Write(w.alarm, one[:]) // a full counter wakes as well
}

// Close gives the waiter's own descriptors back. Wait and Arm must have returned, and not be called again.
func (w *Waiter) Close() error {
	w.waking.Lock()
	defer w.waking.Unlock()
	var errs []error
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	for _, fd := range []int{w.alarm, w.timer} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	w.file, w.alarm, w.timer = nil, -1, -1
	return errors.Join(errs...)
}
