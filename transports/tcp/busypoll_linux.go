package tcp

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxWatched bounds how many connections are polled: each takes some 50 ns a poll.
	maxWatched = 64
	// maxSkipped bounds how many Waits in a row do not poll.
	maxSkipped = 63
)

// busyPoll is the state of the polling that Wait does before it sleeps.
type busyPoll struct {
	mu      sync.Mutex
	time    time.Duration
	watched []int32 // descriptors of the connections
	// A Wait that polled in vain makes the next Wait skip polling, then the next three and so on,
	// until data arrives in time again. skip counts the Waits left to skip, vain is its last value.
	vain, skip int
}

// SetBusyPoll makes Wait poll the connections for a time before it sleeps, yielding to other
// processes in between. A sleep and the wake-up take longer than a small message, so ranks that
// answer each other become faster. The price is processor time. Waits that would poll in vain poll
// ever more rarely, down to one of 64. Zero, the default, sleeps at once, and so does an endpoint
// with more than 64 connections. It is safe for concurrent use and applies from the next Wait on.
func (e *Endpoint) SetBusyPoll(d time.Duration) {
	b := &e.busy
	b.mu.Lock()
	defer b.mu.Unlock()
	b.time, b.vain, b.skip = max(d, 0), 0, 0
}

// watch adds a new connection, and returns its descriptor, or -1.
func (b *busyPoll) watch(conn *net.TCPConn) (descriptor int32) {
	descriptor = -1
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { descriptor = int32(fd) })
	}
	if err != nil {
		return -1 // it is closed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = append(b.watched, descriptor)
	return descriptor
}

// forget removes connections that are about to end.
func (b *busyPoll) forget(descriptors []int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = slices.DeleteFunc(b.watched, func(d int32) bool { return slices.Contains(descriptors, d) })
}

// begin returns the descriptors that a Wait polls, and for how long. Zero means that it does not
// poll.
func (b *busyPoll) begin(memory []unix.PollFd) ([]unix.PollFd, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.time == 0, len(b.watched) == 0, len(b.watched) > cap(memory):
		return nil, 0
	case b.skip > 0:
		b.skip--
		return nil, 0
	}
	for _, descriptor := range b.watched {
		memory = append(memory, unix.PollFd{Fd: descriptor, Events: unix.POLLIN})
	}
	return memory, b.time
}

// end records whether data arrived.
func (b *busyPoll) end(came bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.vain = min(2*b.vain+1, maxSkipped); came {
		b.vain = 0
	}
	b.skip = b.vain
}

// poll returns when a connection has data to read, when a completion waits to be polled, or when
// its time is over. A descriptor that was closed meanwhile, or that belongs to another file by now,
// only ends it early.
func (e *Endpoint) poll(ctx context.Context) {
	var memory [maxWatched]unix.PollFd
	watched, patience := e.busy.begin(memory[:0])
	if patience == 0 {
		return
	}
	runtime.Gosched() // posted messages go first
	var now unix.Timespec
	for began := time.Now(); e.Idle(); {
		// Neither call blocks, so the scheduler need not know of them.
		ready, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&watched[0])),
			uintptr(len(watched)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		if ready != 0 {
			break // its reader runs when this goroutine sleeps
		}
		if ctx.Err() != nil || time.Since(began) >= patience {
			e.busy.end(false)
			return
		}
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	e.busy.end(true)
}
