// Package porttest is for tests only. It has the conformance suite for fabric/port's drivers and
// the rig on which the suite runs.
package porttest

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// patience is how long a test waits for an expected event.
const patience = 5 * time.Second

// quiet is how long no frame must arrive before a test concludes that none will.
const quiet = time.Second

// frames returns memory for a batch.
func frames(d port.Description, n int) []port.Frame {
	batch := make([]port.Frame, n)
	for i := range batch {
		batch[i].Data = make([]byte, 0, d.Room())
	}
	return batch
}

// pattern returns a frame of a length whose bytes depend on its number. Its EtherType is the first
// of IEEE 802 for local experiments, so that no protocol accepts it.
func pattern(number, length int) []byte {
	frame := make([]byte, length)
	for i := range frame {
		frame[i] = byte(number + i*7 + i>>8)
	}
	copy(frame, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5})
	if length >= 22 {
		binary.BigEndian.PutUint64(frame[14:], uint64(number))
	}
	return frame
}

// collect receives until want frames have arrived or none arrived for a while, waiting with epoll,
// and passes each to fn.
func collect(t *testing.T, p port.Port, want int, fn func(i int, f port.Frame)) (got int) {
	t.Helper()
	epoll := newEpoll(t, p.Fd(), 0)
	batch := frames(p.Description(), 32)
	deadline := time.Now().Add(patience)
	for got < want && time.Now().Before(deadline) {
		n, err := p.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range batch[:n] {
			fn(got, f)
			got++
		}
		if n == 0 && epoll.wait(t, quiet) == 0 {
			break
		}
	}
	return got
}

type epoll int

func newEpoll(t testing.TB, fd int, flags uint32) epoll {
	t.Helper()
	e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(e) })
	if err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Events: unix.EPOLLIN | flags, Fd: int32(fd)}); err != nil {
		t.Fatal(err)
	}
	return epoll(e)
}

// wait returns the events that occurred within the time, or 0.
func (e epoll) wait(t testing.TB, limit time.Duration) uint32 {
	t.Helper()
	var events [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(int(e), events[:], int(limit/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return 0
		}
		return events[0].Events
	}
}

// sendAll sends frames through the port, and waits while its queue is full.
func sendAll(t testing.TB, p port.Port, frames ...[]byte) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(frames) > 0; {
		n, err := p.Send(frames)
		if err == nil {
			err = p.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		frames = frames[n:]
		if time.Now().After(deadline) {
			t.Fatalf("%d frames were not taken", len(frames))
		}
	}
}

func stats(t testing.TB, p port.Port) port.Stats {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Need skips a test if the driver is not available.
func Need(t testing.TB, driver port.Driver) {
	t.Helper()
	hosttest.Need(t, hosttest.Netns)
	handle, err := NewRig(t, driver, Settings{MTU: 9000}).open(port.Options{})
	if errors.Is(err, verdict.ErrUnsupported) {
		t.Skipf("cannot run here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := handle.Close(); err != nil {
		t.Fatal(err)
	}
}

// Run runs the suite for a driver.
func Run(t *testing.T, driver port.Driver) {
	Need(t, driver)
	for _, test := range []struct {
		name string
		run  func(*testing.T, port.Driver)
	}{
		{"sizes and order", sizesAndOrder},
		{"arbitrary bytes", arbitraryBytes},
		{"too long", tooLong},
		{"tags", tags},
		{"stamps", stamps},
		{"offloads", offloads},
		{"burst", burst},
		{"overflow", overflow},
		{"large batch", largeBatch},
		{"allocations", allocations},
		{"wake-ups", wakeups},
		{"closing", closing},
		{"down and up", downAndUp},
		{"deleted", deleted},
		{"handed over", handedOver},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, driver) })
	}
}
