// Package porttest is for tests only: the conformance suite of fabric/port's
// drivers, and the rig on which it runs them.
package porttest

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
)

// patience is how long a test waits for what must come.
const patience = 5 * time.Second

// frames are memory for a batch.
func frames(d port.Description, n int) []port.Frame {
	batch := make([]port.Frame, n)
	for i := range batch {
		batch[i].Data = make([]byte, 0, d.Room())
	}
	return batch
}

// pattern is a frame of a length whose bytes depend on its number. Its type is
// IEEE 802's first for local experiments, so that no protocol takes it.
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

// collect receives until want frames came or none did for a while, waiting with
// epoll, and hands each to fn.
func collect(t *testing.T, p port.Port, want int, fn func(i int, f port.Frame)) (got int) {
	t.Helper()
	epoll := newEpoll(t, p.Fd())
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
		if n == 0 {
			epoll.wait(t, 200*time.Millisecond)
		}
	}
	return got
}

type epoll int

func newEpoll(t testing.TB, fd int) epoll {
	t.Helper()
	e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(e) })
	if err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		t.Fatal(err)
	}
	return epoll(e)
}

// wait returns the events that came within the time, 0 for none.
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

// sendAll sends frames through the port, waiting where its queue is full.
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

// Run runs the suite.
func Run(t *testing.T, driver port.Driver) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, port.Driver)
	}{
		{"sizes and order", sizesAndOrder},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, driver) })
	}
}

// sizes from the shortest frame to the largest.
func sizes(mtu int) []int {
	all := []int{14, 15, 17, 59, 60, 61, 64, 65, 127, 128, 129, 512, 1024}
	for _, size := range []int{1400, 1514, 2047, 2048, 4096, 8192} {
		if size < mtu {
			all = append(all, size)
		}
	}
	return append(all, mtu, mtu+13, mtu+14)
}

func sizesAndOrder(t *testing.T, driver port.Driver) {
	for _, mtu := range []int{1500, 4200, 9000} {
		r := NewRig(t, driver, mtu, false)
		p := r.Port(t, port.Options{})
		nic := r.NIC(t)
		all := sizes(mtu)
		for i, size := range all {
			if err := nic.Send(pattern(i, size)); err != nil {
				t.Fatalf("mtu %d: send %d bytes: %v", mtu, size, err)
			}
		}
		got := collect(t, p, len(all), func(i int, f port.Frame) {
			if want := pattern(i, all[i]); !bytes.Equal(f.Data, want) {
				t.Errorf("mtu %d: frame %d of %d bytes came as %d: % x...", mtu, i, len(want), len(f.Data), f.Data[:14])
			}
		})
		if got != len(all) {
			t.Errorf("mtu %d: %d of %d frames came; %+v", mtu, got, len(all), stats(t, p))
		}
		for i, size := range all {
			sendAll(t, p, pattern(i, size))
		}
		for i, size := range all {
			r, ok, err := nic.Receive(patience)
			if err != nil || !ok || !bytes.Equal(r.Data, pattern(i, size)) {
				t.Fatalf("mtu %d: the node got %d bytes, %v, %v; want frame %d of %d bytes; %+v", mtu, len(r.Data), ok, err, i, size, stats(t, p))
			}
		}
		if s := stats(t, p); s.Sent != uint64(len(all)) || s.Received != uint64(len(all)) || s.Truncated+s.Refused+s.SendFailed != 0 {
			t.Errorf("mtu %d: %+v, want %d both ways and nothing else", mtu, s, len(all))
		}
	}
}
