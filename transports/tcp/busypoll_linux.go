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
	// maxWatched bounds how many connections are looked at: each costs some 50 ns a time.
	maxWatched = 64
	// maxSkipped bounds how many Waits in a row do not look.
	maxSkipped = 63
)

// busyPoll is how Wait looks for what comes before it sleeps.
type busyPoll struct {
	mu      sync.Mutex
	time    time.Duration
	watched []int32 // descriptors of the connections
	// Who looked in vain does not look at the next Wait, then at the next three and so on,
	// until something came in time again: skip are those left, vain as many as there were.
	vain, skip int
}

// SetBusyPoll has Wait look at the connections for so long, giving way to other processes
// in between, before it sleeps. A sleep and the wake-up take longer than a small message
// does, so that ranks that answer each other are faster for it; what it costs is processor
// time. Waits that would look in vain look ever more rarely, down to one of 64. Zero, as at
// first, sleeps at once, and so does an endpoint with more than 64 connections. It is safe
// to call at any time and holds from the next Wait on.
func (e *Endpoint) SetBusyPoll(d time.Duration) {
	b := &e.busy
	b.mu.Lock()
	defer b.mu.Unlock()
	b.time, b.vain, b.skip = max(d, 0), 0, 0
}

// watch is told of a new connection, and returns its descriptor; -1 is none.
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

// forget is told that connections are about to end.
func (b *busyPoll) forget(descriptors []int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched = slices.DeleteFunc(b.watched, func(d int32) bool { return slices.Contains(descriptors, d) })
}

// begin returns what a Wait looks at, and for how long; zero is that it does not.
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

// end is told whether something came.
func (b *busyPoll) end(came bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.vain = min(2*b.vain+1, maxSkipped); came {
		b.vain = 0
	}
	b.skip = b.vain
}

// look returns when a connection has something to read, when something waits to be polled,
// or when its time is over. A descriptor that was closed meanwhile, or is another file's
// by now, ends it early at worst.
func (e *Endpoint) look(ctx context.Context) {
	var memory [maxWatched]unix.PollFd
	watched, patience := e.busy.begin(memory[:0])
	if patience == 0 {
		return
	}
	runtime.Gosched() // what was posted goes first
	var now unix.Timespec
	for began := time.Now(); e.completions.Empty(); {
		// Neither blocks, so that the scheduler need not know.
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
