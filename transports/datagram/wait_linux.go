// Package datagram is what transports do alike with sockets of their own: wait for
// them and for a moment of the testbed's time, and read and write batches, past
// Go's net package, whose calls are one datagram each.
package datagram

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/fabric/clock"
)

// Waiter waits for one of some descriptors, for a moment, or to be woken, in Go's
// own poller: a thread that waits in a system call instead makes the runtime look
// after it every 20 us, which cost more CPU than all packets of a slow link. Go's
// timers wake up to a millisecond late, so the kernel's timer is one of the
// descriptors. A descriptor is watched during a wait only: each packet that came to
// one that nobody waited for called two instances of epoll, one within the other,
// and woke the thread of Go's poller in vain. Arm and Wait belong to one goroutine at
// a time.
type Waiter struct {
	file    *os.File // of an epoll instance with the descriptors, which Go's polls
	raw     syscall.RawConn
	watched []unix.EpollEvent // each until it can be read (EPOLLONESHOT)
	watch   func(fd uintptr)
	look    func(fd uintptr) bool
	alarm   int // an eventfd
	timer   int // a timerfd
	alarmAt unix.ItimerSpec
	count   [8]byte
}

// NewWaiter makes a waiter for descriptors, which stay the caller's and are to be
// closed after it.
func NewWaiter(fds ...int) (w *Waiter, err error) {
	w = &Waiter{alarm: -1, timer: -1}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("open eventfd: %w", err)
	}
	if w.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
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
	all := []unix.EpollEvent{{Events: unix.EPOLLIN, Fd: int32(w.alarm)}, {Events: unix.EPOLLIN, Fd: int32(w.timer)}}
	for _, fd := range fds {
		all = append(all, unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)})
	}
	w.watched = all[2:]
	for i := range all {
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(all[i].Fd), &all[i]); err != nil {
			return nil, fmt.Errorf("watch descriptor: %w", err)
		}
	}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		return nil, fmt.Errorf("poll epoll: %w", err)
	}
	w.watch = func(fd uintptr) {
		for i := range w.watched {
			e := &w.watched[i]
			_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, fd, unix.EPOLL_CTL_MOD, uintptr(e.Fd), uintptr(unsafe.Pointer(e)), 0, 0)
		}
	}
	events := new([4]unix.EpollEvent)
	w.look = func(fd uintptr) bool {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		return errno != 0 && errno != unix.EINTR || n > 0
	}
	return w, nil
}

// Arm makes the next Wait end at a moment of the clock; false if that has come.
func (w *Waiter) Arm(c *clock.Clock, until clock.Time) bool {
	at := &w.alarmAt
	*at = unix.ItimerSpec{} // never
	if until != clock.Never {
		d := c.Wait(until.Sub(c.Now()))
		if d <= 0 {
			return false
		}
		at.Value = unix.NsecToTimespec(int64(d))
	}
	// This also makes it unreadable again.
	_, _, _ = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(w.timer), 0, uintptr(unsafe.Pointer(at)), 0, 0, 0)
	return true
}

// Wait returns once a descriptor can be read, the moment that is armed has come, or
// Wake was called.
func (w *Waiter) Wait() {
	_ = w.raw.Control(w.watch)
	_ = w.raw.Read(w.look) // an error ends the wait, too
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(w.alarm), uintptr(unsafe.Pointer(&w.count)), 8)
}

// Wake ends a Wait, or the next one. It may be called by anybody until Close.
func (w *Waiter) Wake() {
	one := [8]byte{1}
	_, _ = unix.Write(w.alarm, one[:]) // a full counter wakes as well
}

// Close gives the waiter's own descriptors back.
func (w *Waiter) Close() error {
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
