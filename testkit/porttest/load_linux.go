package porttest

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
)

// Ten thousand frames at a modest rate all arrive, and each loss is counted.
func burst(t *testing.T, driver port.Driver) {
	const count, atOnce = 10_000, 20
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{RingBytes: 8 << 20}) // so that a machine may stall for some 20 ms
	nic := r.NIC(t)
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range count {
			if err := nic.Send(pattern(i, 60)); err != nil {
				t.Errorf("send frame %d: %v", i, err)
				return
			}
			if i%atOnce == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	last := -1
	got := collect(t, p, count, func(_ int, f port.Frame) { last = inOrder(t, last, f) })
	sender.Wait()
	s := stats(t, p)
	if uint64(got)+s.KernelDropped != count {
		t.Errorf("%d frames came and %d were dropped, of %d: %+v", got, s.KernelDropped, count, s)
	}
	if s.KernelDropped > count/100 { // tolerates a machine that stalls for longer than the ring holds
		t.Errorf("%d of %d frames were dropped at a modest rate", s.KernelDropped, count)
	}
}

// Ten thousand frames that no process reads overflow the ring. The first of them arrive, the others
// are counted, and frames sent afterwards arrive again.
func overflow(t *testing.T, driver port.Driver) {
	const count, after = 10_000, 100
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	sent := 0
	for i := range count {
		switch err := nic.Send(pattern(i, 60)); {
		case err == nil:
			sent++
		case !errors.Is(err, unix.ENOBUFS): // the NIC itself reports the drop
			t.Fatal(err)
		}
	}
	last := -1
	got := collect(t, p, p.Description().Slots, func(_ int, f port.Frame) { last = inOrder(t, last, f) })
	if got < port.MinSlots {
		t.Errorf("%d frames came, want at least the %d that a ring holds", got, port.MinSlots)
	}
	for i := range after {
		nic.send(t, pattern(count+i, 60))
		got += collect(t, p, 1, func(_ int, f port.Frame) { last = inOrder(t, last, f) })
	}
	if last != count+after-1 {
		t.Errorf("the last frame is %d, want %d", last, count+after-1)
	}
	if s := stats(t, p); s.KernelDropped == 0 || uint64(got)+s.KernelDropped != uint64(sent+after) {
		t.Errorf("%d frames came and %d were dropped, of %d: %+v", got, s.KernelDropped, sent+after, s)
	}
}

// A batch may be larger than the number of frames that a driver passes to the kernel at a time. All
// of it is sent in order.
func largeBatch(t *testing.T, driver port.Driver) {
	const count = 200 // the capacity of the node's socket if its buffer cannot be raised
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	for round := range 5 {
		batch := make([][]byte, count)
		for i := range batch {
			batch[i] = pattern(round*count+i, 60+i%7)
		}
		sendAll(t, p, batch...)
		for i := range batch {
			if data := nic.receive(t); !bytes.Equal(data, batch[i]) {
				t.Fatalf("round %d: frame %d reached the node as %d bytes: % x", round, i, len(data), data)
			}
		}
	}
	if s := stats(t, p); s.Sent != 5*count || s.SendFailed != 0 {
		t.Errorf("%+v, want %d sent", s, 5*count)
	}
}

// inOrder returns the number of a frame of pattern.
func inOrder(t *testing.T, last int, f port.Frame) int {
	number := int(f.Data[20])<<8 | int(f.Data[21])
	if number <= last {
		t.Errorf("frame %d came after %d", number, last)
	}
	return number
}

// No memory is allocated for a frame, whether it is passed on or dropped.
func allocations(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{})
	p := r.Port(t, port.Options{})
	nic := r.NIC(t)
	r.setNICMTU(t, r.MTU+2)
	good, long := pattern(1, 1000), pattern(1, r.MTU+HeaderLen+2)
	batch := frames(p.Description(), 32)
	out := [][]byte{good, long, good}
	var problem error
	received := 0
	perRun := testing.AllocsPerRun(200, func() {
		for _, frame := range out {
			if err := nic.Send(frame); err != nil {
				problem = err
			}
		}
		for range 3 {
			n, err := p.Receive(batch)
			received += n
			if err != nil {
				problem = err
			}
		}
		if _, err := p.Send(out); err != nil {
			problem = err
		}
		if err := p.Flush(); err != nil {
			problem = err
		}
	})
	if perRun != 0 || problem != nil {
		t.Errorf("%.1f allocations for a round, %v", perRun, problem)
	}
	if s := stats(t, p); received < 200 || s.Truncated == 0 || s.SendFailed == 0 || s.Sent == 0 {
		t.Errorf("%d frames received; the test shows nothing: %+v", received, s)
	}
}

// A thread that waits for the descriptor is woken for every frame, level and edge triggered.
func wakeups(t *testing.T, driver port.Driver) {
	for _, mode := range []struct {
		name  string
		flags uint32
	}{{"level", 0}, {"edge", unix.EPOLLET}} {
		const rounds = 1500
		r := NewRig(t, driver, Settings{})
		p := r.Port(t, port.Options{})
		nic := r.NIC(t)
		e := newEpoll(t, p.Fd(), mode.flags)
		batch := frames(p.Description(), 4)
		var taken atomic.Int64
		var sender sync.WaitGroup
		var stop atomic.Bool
		sender.Go(func() {
			// The next frame arrives as soon as the previous one was taken: the receiver is about
			// to wait, or already waits.
			for i := range rounds {
				if nic.Send(pattern(i, 60)) != nil {
					return
				}
				for taken.Load() <= int64(i) && !stop.Load() {
					runtime.Gosched()
				}
				for range i % 50 * 20 {
					taken.Load()
				}
			}
		})
		for got := 0; got < rounds; {
			if e.wait(t, patience) == 0 {
				t.Errorf("%s: nothing woke the receiver after %d frames: %+v", mode.name, got, stats(t, p))
				break
			}
			for {
				n, err := p.Receive(batch)
				if err != nil {
					t.Fatal(err)
				}
				got += n
				taken.Store(int64(got))
				if n == 0 {
					break
				}
			}
		}
		stop.Store(true)
		sender.Wait()
		if mode.flags == 0 && e.wait(t, 20*time.Millisecond) != 0 {
			t.Error("readable although no frame waits")
		}
	}
}
