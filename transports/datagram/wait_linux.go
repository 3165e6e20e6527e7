// Package datagram holds the socket code that transports share. It waits for sockets and for a time
// of the testbed's clock, and reads and writes datagrams in batches. Go's net package is no
// substitute: it transfers one datagram a call.
package datagram

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
)

// Waiter waits until one of its descriptors is readable, a time has come, or Wake is called. It
// waits in Go's own poller. If a thread waited in a system call instead, the runtime would check on
// it every 20 us, which cost more CPU than all packets of a slow link. Go's timers fire up to a
// millisecond late, so a kernel timer is one of the descriptors.
//
// A descriptor is watched during a wait only. Otherwise each packet on a descriptor without a
// waiter runs two instances of epoll, one within the other, and wakes the thread of Go's poller in
// vain. A wait for packets alone needs two system calls in addition to the calls of Go's
// poller. The waiter needs no system call to find out whether Wake was called and when the timer
// fires. It does not move a timer that fires a little early.
//
// Wait must be called by one goroutine at a time, and Arm by one goroutine at a time. These may be
// two goroutines.
type Waiter struct {
	file  *os.File // of an epoll instance with the descriptors; Go's poller watches it
	raw   syscall.RawConn
	over  func(fd uintptr) bool
	first bool // the next call is a wait's first
	// descriptors are each watched until readable (EPOLLONESHOT). watched counts those that still
	// are. known is true if epoll has no pending event of the others: none was queued behind
	// another readable descriptor.
	descriptors []unix.EpollEvent
	watched     int
	known       bool
	readable    []int32 // of the descriptors, found by the latest Wait
	alarm       int     // an eventfd
	woken       atomic.Bool
	waking      sync.RWMutex // Wake read-locks it to write to alarm; Close locks it to close alarm
	timer       int          // a timerfd
	timerAt     unix.ItimerSpec
	began       time.Time
	goesOff     atomic.Int64 // the earliest time after began at which the timer fires; or never
	count       [8]byte
}

const (
	never = math.MaxInt64
	// seldom bounds how much too early the timer may fire: rare wakeups in vain do not show, while
	// moving the timer takes a system call at each packet.
	seldom = int64(10 * time.Millisecond)
)

// NewWaiter makes a waiter for descriptors. They remain the caller's, who must close the waiter
// before them.
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
	if err := unix.SetNonblock(epoll, true); err != nil { // else package os does not poll it
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
	w.over = func(fd uintptr) bool { return w.isOver(fd, events) }
	return w, nil
}

// isOver reports whether a wait is over. Go's poller reports changes from before the first call on,
// so the first call checks the present state. A descriptor that is readable when its watch begins
// is reported, too, but not one whose watch began before.
func (w *Waiter) isOver(epoll uintptr, events []unix.EpollEvent) bool {
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
			w.readable = append(w.readable, e.Fd)
		}
	}
	return n > 0
}

// quiet resets the alarm of Wake.
func (w *Waiter) quiet() {
	w.known = false
	w.woken.Store(false)
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(w.alarm), uintptr(unsafe.Pointer(&w.count)), 8)
}

func (w *Waiter) now() int64 { return int64(time.Since(w.began)) }

// Arm makes the present or next Wait end at the time until of the clock, or earlier. It returns
// false if that time has passed.
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
		w.goesOff.Store(at) // before the timer can fire: else a wait that begins then would miss it
		// This also makes the timer unreadable again.
		_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0,
			uintptr(unsafe.Pointer(&w.timerAt)), 0, 0, 0)
	}
	return true
}

// Wait returns once a descriptor is readable, the armed moment has come, or Wake was called.
func (w *Waiter) Wait() {
	w.first, w.readable = true, w.readable[:0]
	_ = w.raw.Read(w.over) // an error ends the wait, too
	if w.woken.Load() {
		w.quiet()
	}
}

// Readable reports whether the latest Wait found a descriptor readable. A descriptor that became readable
// since, or beside another event, is found by the next Wait.
func (w *Waiter) Readable(fd int) bool { return slices.Contains(w.readable, int32(fd)) }

// Wake ends the present Wait, or the next Wait. It is safe for concurrent use, also with Close.
// After Close it does nothing: by then the alarm's number may belong to another file.
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

// Close closes the waiter's own descriptors. Wait and Arm must have returned, and must not be
// called again.
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
